"""Kafka records in the backups of other programs: OSO's kafka-backup, and itadventurer's."""
