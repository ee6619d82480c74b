"""HTTP: the connector that takes posted messages, and what it shares with the server of the live map."""
