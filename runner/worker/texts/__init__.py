"""Steps that make and change texts, and turn them into token stores."""
