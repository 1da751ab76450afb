"""The REST and GraphQL operations."""
