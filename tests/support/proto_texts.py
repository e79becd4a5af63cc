"""Texts of .proto files with unusual syntax, in proto2 and proto3."""

OLD = r"""// A comment; /* not another one
syntax = 'proto2';;
package a . b.c; /* package x; */
import public "google/protobuf/timestamp.proto";
import weak 'google/protobuf/'
    "any.proto";
option java_package = "x;{";
option (custom).deep = { a: "}" b { c: [1, 2] } };
message Outer {
  option deprecated = true;
  required double double_ = 0x0A [default = -1.5e+3];
  optional float float_ = 011 [default = inf, deprecated = true];
  optional int64 n = 1 [(x.y).z = {a: [1]}, default = -0x10];
  optional string s = 2 [default = "h\303\251\x41" '\'\u00e9'];
  optional bytes raw = 3 [default = "a\377\"\000"];
  optional bool b = 4 [default = true];
  repeated sint32 packed = 5 [packed = true];
  optional .a.b.c.Color color = 6 [default = BLUE];
  optional Inner.Leaf leaf = 7;
  repeated group Pair = 8 { required int32 message = 1; optional group Deep = 2 {} }
  map < string , Color > some_colors = 12;
  oneof choice { option (o) = 1; string text = 13; group Chosen = 14 { optional bytes x = 1; } ; }
  extensions 100, 200 to 299, 1000 to max [verification = UNVERIFIED];
  reserved 50 to 60, 70; reserved "old", "older";
  message Inner { message Leaf {} enum E { Z = 0; } optional E e = 1; optional Outer outer = 2; }
  extend Outer { optional int32 more = 100; repeated group Added = 200 { optional int32 y = 1; } }
  message Last {}
}
enum Color {
  option allow_alias = true;
  NONE = 0; RED = 1 [(c) = {}]; BLUE = -0x2; AZURE = -2; reserved 7; }
extend Outer { optional group Top = 1000 { optional int32 z = 1; } }
service S {
  option deprecated = true;
  rpc Get(Outer) returns (stream Outer) { option (h) = { get: "/" }; }
  rpc B (Outer) returns (Outer);
}
message After {
  message CountsEntry {
    option map_entry = true; optional string key = 1; optional int32 value = 2;
  }
  message Last {}
  repeated CountsEntry counts = 1;
}
"""
NEW = """syntax = "proto3";
message M {
  map<int32, M> by_id = 1;
  optional int32 a = 2;
  oneof _b { int32 c = 3; }
  optional string b = 4;
  message Nested { optional bool only = 1; }
  repeated int32 plain = 5 [packed = false];
  repeated .M.Nested nested = 6;
  uint32 optional = 7; fixed32 message = 8; fixed64 syntax = 9; sfixed32 map = 10;
  sfixed64 rpc = 11; uint64 u = 12; sint64 v = 13;
}
enum E { NONE = 0; }
"""
