"""How is a program that speaks USRBIO tested without 3FS?"""
