"""The table of error codes, and the exception for one of them."""
import pickle

import pytest

from wirescan.kafka.errors import BrokerError, ErrorCode

GUIDE = {0: "NONE", -1: "UNKNOWN_SERVER_ERROR", 1: "OFFSET_OUT_OF_RANGE", 2: "CORRUPT_MESSAGE",
         3: "UNKNOWN_TOPIC_OR_PARTITION", 4: "INVALID_FETCH_SIZE", 5: "LEADER_NOT_AVAILABLE",
         6: "NOT_LEADER_OR_FOLLOWER", 7: "REQUEST_TIMED_OUT", 8: "BROKER_NOT_AVAILABLE", 9: "REPLICA_NOT_AVAILABLE",
         10: "MESSAGE_TOO_LARGE"}


def test_the_codes_of_the_guide():
    for code, name in GUIDE.items():
        assert ErrorCode(code).name == name and ErrorCode[name] == code


def test_codes_leave_no_gap_and_say_what_they_mean():
    assert [int(code) for code in ErrorCode] == list(range(-1, len(ErrorCode) - 1))
    meanings = [code.meaning for code in ErrorCode]
    assert len(set(meanings)) == len(meanings)
    assert all(meaning and "\n" not in meaning and not meaning.endswith(".") for meaning in meanings)
    assert all(type(code.retriable) is bool for code in ErrorCode)


def test_what_may_be_retried():
    again = {ErrorCode.LEADER_NOT_AVAILABLE, ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.REQUEST_TIMED_OUT,
             ErrorCode.CORRUPT_MESSAGE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.FENCED_LEADER_EPOCH}
    assert all(code.retriable for code in again)
    never = {ErrorCode.NONE, ErrorCode.OFFSET_OUT_OF_RANGE, ErrorCode.UNKNOWN_SERVER_ERROR,
             ErrorCode.SASL_AUTHENTICATION_FAILED, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER}
    assert not any(code.retriable for code in never)


def test_a_code_is_a_number():
    assert ErrorCode.NOT_COORDINATOR == 16 and f"{ErrorCode.NOT_COORDINATOR:d}" == "16"
    assert pickle.loads(pickle.dumps(ErrorCode.NOT_COORDINATOR)) is ErrorCode.NOT_COORDINATOR
    with pytest.raises(ValueError):
        ErrorCode(-2)


@pytest.mark.parametrize("error, said", [
    (BrokerError(1), "OFFSET_OUT_OF_RANGE (1): The offset is below the log's start or beyond its end"),
    (BrokerError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "orders-0 at 127.0.0.1:9092"),
     "NOT_LEADER_OR_FOLLOWER (6): The broker does not lead this partition, or has no replica of it, "
     "for orders-0 at 127.0.0.1:9092"),
    (BrokerError(30_000, "orders-0"), "unknown error code 30000, for orders-0"),
    (BrokerError(87, message="bad\x1b[2J"),
     "INVALID_RECORD (87): The broker refuses a record for what is in it; the broker says 'bad\\x1b[2J'"),
])
def test_broker_error(error, said):
    assert str(error) == said
    copy = pickle.loads(pickle.dumps(error))
    for one in (error, copy):
        assert isinstance(one, RuntimeError) and str(one) == said
        assert (one.code, one.where, one.message) == (error.code, error.where, error.message)
        assert isinstance(one.code, ErrorCode) == (one.code in ErrorCode._value2member_map_)
        assert one.retriable is (one.code == 6)
