"""Folders of files that the tests read."""

from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
CORPUS = ROOT / "tests" / "corpus"
KAFKA_CORPUS = CORPUS / "kafka"
ORDERS = KAFKA_CORPUS / "orders-0"
TIERED_STORAGE = CORPUS / "kafka-tiered-storage"
AIVEN_STORAGE = CORPUS / "kafka-aiven-storage"
