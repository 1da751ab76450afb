"""What GitHub told us, kept until it is dealt with."""
