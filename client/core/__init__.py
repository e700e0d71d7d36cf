"""The pure client: what is known of each future and each graph sent."""
