"""MQTT 5: the connector, and publishing to a broker."""
