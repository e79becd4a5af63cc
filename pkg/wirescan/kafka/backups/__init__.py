"""Kafka records in the backups of other programs: KBAK segments of OSO's kafka-backup."""
