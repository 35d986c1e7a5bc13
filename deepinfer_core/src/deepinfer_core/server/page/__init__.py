"""What does a browser see at ``/``?

A static page: it speaks to the service like any other client. Nothing in it is built, and it loads
nothing from elsewhere.
"""
