"""Agents at work while what they write to, a real Kafka broker, is killed, frozen or cut off."""
