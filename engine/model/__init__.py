"""The computation: decoder, attention, loss, sharding."""
