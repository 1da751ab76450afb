"""The inbox: deliveries from GitHub, kept until they are handled."""
