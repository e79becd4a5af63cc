// What the Thrift peers talk about: every type that the library of each can write, and every way that a call can end.

struct Point {
    1: i32 x,
    2: i32 y,
}

struct Node {
    1: string name,
    2: list<Node> children,
}

struct Everything {
    1: bool yes,
    2: bool no,
    3: byte tiny,
    4: i16 small,
    5: i32 plain,
    6: i64 large,
    7: double real,
    8: string text,
    9: binary data,
    10: list<i32> numbers,
    11: set<string> words,
    12: map<string, i64> counts,
    13: Point point,
    14: list<Point> points,
    15: map<i32, list<string>> lists,
    16: list<bool> bits,
    17: map<byte, bool> flags,
    18: set<i16> smalls,
    19: list<list<double>> reals,
    20: map<string, Point> places,
    21: list<string> none,
    22: map<i64, binary> nothing,
    23: Node tree,
    // far from the field before it: no delta of the compact protocol
    60: i32 far,
    300: string farther,
    // ... and before it
    25: i64 back,
}

exception Refusal {
    1: string why,
    2: i32 code,
}

service Peer {
    i32 add(1: i32 a, 2: i32 b),
    Everything echo(1: Everything what) throws (1: Refusal refusal),
    void nothing(),
    string refuse(1: string why) throws (2: Refusal refusal),
    binary fail(1: i64 number),
    oneway void tell(1: string text, 2: binary data),
}

// of which the server knows nothing
service More extends Peer {
    bool missing(1: double real, 2: list<i32> numbers),
}
