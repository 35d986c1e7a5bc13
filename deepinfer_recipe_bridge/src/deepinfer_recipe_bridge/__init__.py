"""How are the public chat protocols spoken? Three of them, through ``deepseek-recipe``."""
