"""The commands that need the bot."""
