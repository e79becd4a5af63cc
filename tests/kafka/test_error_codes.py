"""The table of error codes, and the exception for one of them."""

import pickle

import pytest

from wirescan.kafka.protocol.error_codes import BrokerError, ErrorCode

GUIDE = {
    0: "NONE",
    -1: "UNKNOWN_SERVER_ERROR",
    1: "OFFSET_OUT_OF_RANGE",
    2: "CORRUPT_MESSAGE",
    3: "UNKNOWN_TOPIC_OR_PARTITION",
    4: "INVALID_FETCH_SIZE",
    5: "LEADER_NOT_AVAILABLE",
    6: "NOT_LEADER_OR_FOLLOWER",
    7: "REQUEST_TIMED_OUT",
    8: "BROKER_NOT_AVAILABLE",
    9: "REPLICA_NOT_AVAILABLE",
    10: "MESSAGE_TOO_LARGE",
}


def test_the_codes_of_the_guide():
    for code, name in GUIDE.items():
        assert ErrorCode(code).name == name
        assert ErrorCode[name] == code


def test_codes_leave_no_gap_and_have_a_meaning():
    assert [int(code) for code in ErrorCode] == list(range(-1, len(ErrorCode) - 1))
    meanings = [code.meaning for code in ErrorCode]
    assert len(set(meanings)) == len(meanings)
    assert all(meanings)
    assert not any("\n" in meaning for meaning in meanings)
    assert not any(meaning.endswith(".") for meaning in meanings)
    assert all(type(code.retriable) is bool for code in ErrorCode)


def test_errors_that_may_be_retried():
    retriable = {
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.FENCED_LEADER_EPOCH,
    }
    assert all(code.retriable for code in retriable)
    final = {
        ErrorCode.NONE,
        ErrorCode.OFFSET_OUT_OF_RANGE,
        ErrorCode.UNKNOWN_SERVER_ERROR,
        ErrorCode.SASL_AUTHENTICATION_FAILED,
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
    }
    assert not any(code.retriable for code in final)


def test_a_code_is_a_number():
    assert ErrorCode.NOT_COORDINATOR == 16
    assert f"{ErrorCode.NOT_COORDINATOR:d}" == "16"
    assert pickle.loads(pickle.dumps(ErrorCode.NOT_COORDINATOR)) is ErrorCode.NOT_COORDINATOR
    with pytest.raises(ValueError, match="-2 is not a valid ErrorCode"):
        ErrorCode(-2)


@pytest.mark.parametrize(
    "error, said",
    [
        (
            BrokerError(1),
            "OFFSET_OUT_OF_RANGE (1): The offset is below the log's start or beyond its end",
        ),
        (
            BrokerError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "orders-0 at 127.0.0.1:9092"),
            (
                "NOT_LEADER_OR_FOLLOWER (6): The broker is not the partition's leader or has no "
                "replica, for orders-0 at 127.0.0.1:9092"
            ),
        ),
        (BrokerError(30_000, "orders-0"), "unknown error code 30000, for orders-0"),
        (
            BrokerError(87, message="bad\x1b[2J"),
            (
                "INVALID_RECORD (87): The broker rejects a record because of its content; "
                "the broker says 'bad\\x1b[2J'"
            ),
        ),
    ],
)
def test_a_broker_error_names_its_code(error, said):
    assert str(error) == said
    copy = pickle.loads(pickle.dumps(error))
    for each in (error, copy):
        assert isinstance(each, RuntimeError)
        assert str(each) == said
        assert (each.code, each.where, each.message) == (error.code, error.where, error.message)
        assert isinstance(each.code, ErrorCode) == (each.code in ErrorCode._value2member_map_)
        assert each.retriable is (each.code == 6)
