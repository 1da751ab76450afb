"""What is computed: the decoder, attention, loss, sharding."""
