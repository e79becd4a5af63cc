// Package calculator is the service of the peers, and its messages: no struct of it is known beforehand, each is a tree.
//
// In JSON a tree is a list of [field id, type, value]. Strings are in hexadecimal, structs are trees; a list or set is
// {"of": type, "items": [...]}, a map {"key": type, "of": type, "items": [[key, value], ...]}.
package calculator

import (
	"encoding/hex"
	"encoding/json"
	"fmt"
)

const (
	stop    = 0
	boolean = 2
	i8      = 3
	double  = 4
	i16     = 6
	i32     = 8
	i64     = 10
	text    = 11
	record  = 12
	mapping = 13
	set     = 14
	list    = 15
	uuid    = 16 // of Apache only
	float   = 19 // of fbthrift only
)

// Protocol is what both libraries' protocols have in common; T is the library's type of a type.
type Protocol[T ~byte] interface {
	WriteStructBegin(name string) error
	WriteStructEnd() error
	WriteFieldBegin(name string, kind T, id int16) error
	WriteFieldEnd() error
	WriteFieldStop() error
	WriteMapBegin(key, value T, size int) error
	WriteMapEnd() error
	WriteListBegin(element T, size int) error
	WriteListEnd() error
	WriteSetBegin(element T, size int) error
	WriteSetEnd() error
	WriteBool(bool) error
	WriteByte(byte) error
	WriteI16(int16) error
	WriteI32(int32) error
	WriteI64(int64) error
	WriteDouble(float64) error
	WriteBinary([]byte) error

	ReadStructBegin() (string, error)
	ReadStructEnd() error
	ReadFieldBegin() (string, T, int16, error)
	ReadFieldEnd() error
	ReadMapBegin() (key, value T, size int, err error)
	ReadMapEnd() error
	ReadListBegin() (T, int, error)
	ReadListEnd() error
	ReadSetBegin() (T, int, error)
	ReadSetEnd() error
	ReadBool() (bool, error)
	ReadByte() (byte, error)
	ReadI16() (int16, error)
	ReadI32() (int32, error)
	ReadI64() (int64, error)
	ReadDouble() (float64, error)
	ReadBinary() ([]byte, error)
}

type floats interface {
	WriteFloat(float32) error
	ReadFloat() (float32, error)
}

type uuids interface {
	WriteUUID([16]byte) error
	ReadUUID() ([16]byte, error)
}

// Tree is a struct in JSON.
type Tree = json.RawMessage

type items struct {
	Key   byte              `json:"key,omitempty"`
	Of    byte              `json:"of"`
	Items []json.RawMessage `json:"items"`
}

// first returns the first error.
func first(errors ...error) error {
	for _, err := range errors {
		if err != nil {
			return err
		}
	}
	return nil
}

// give parses a value and gives it to what writes it.
func give[V any](given json.RawMessage, write func(V) error) error {
	var value V
	if err := json.Unmarshal(given, &value); err != nil {
		return err
	}
	return write(value)
}

// got is the JSON of what was read.
func got[V any](value V, err error) (json.RawMessage, error) {
	if err != nil {
		return nil, err
	}
	return json.Marshal(value)
}

// Write writes a struct.
func Write[T ~byte](to Protocol[T], tree Tree) error {
	var fields [][3]json.RawMessage
	if err := first(json.Unmarshal(tree, &fields), to.WriteStructBegin("")); err != nil {
		return err
	}
	for _, field := range fields {
		var id int16
		var kind byte
		if err := first(json.Unmarshal(field[0], &id), json.Unmarshal(field[1], &kind)); err != nil {
			return err
		}
		if err := to.WriteFieldBegin("", T(kind), id); err != nil {
			return err
		}
		if err := write(to, kind, field[2]); err != nil {
			return err
		}
		if err := to.WriteFieldEnd(); err != nil {
			return err
		}
	}
	return first(to.WriteFieldStop(), to.WriteStructEnd())
}

func write[T ~byte](to Protocol[T], kind byte, value json.RawMessage) error {
	switch kind {
	case boolean:
		return give(value, to.WriteBool)
	case i8:
		return give(value, func(number int8) error { return to.WriteByte(byte(number)) })
	case i16:
		return give(value, to.WriteI16)
	case i32:
		return give(value, to.WriteI32)
	case i64:
		return give(value, to.WriteI64)
	case double:
		return give(value, to.WriteDouble)
	case float:
		return give(value, any(to).(floats).WriteFloat)
	case text, uuid:
		return give(value, func(digits string) error {
			data, err := hex.DecodeString(digits)
			if err != nil {
				return err
			}
			if kind == uuid {
				return any(to).(uuids).WriteUUID([16]byte(data))
			}
			return to.WriteBinary(data)
		})
	case record:
		return Write(to, value)
	case list, set, mapping:
		return give(value, func(held items) error { return writeItems(to, kind, held) })
	}
	return fmt.Errorf("there is no type %d", kind)
}

func writeItems[T ~byte](to Protocol[T], kind byte, held items) error {
	begin, end := to.WriteListBegin, to.WriteListEnd
	if kind == set {
		begin, end = to.WriteSetBegin, to.WriteSetEnd
	} else if kind == mapping {
		begin = func(element T, size int) error { return to.WriteMapBegin(T(held.Key), element, size) }
		end = to.WriteMapEnd
	}
	if err := begin(T(held.Of), len(held.Items)); err != nil {
		return err
	}
	for _, item := range held.Items {
		var err error
		if kind == mapping {
			err = give(item, func(pair [2]json.RawMessage) error {
				return first(write(to, held.Key, pair[0]), write(to, held.Of, pair[1]))
			})
		} else {
			err = write(to, held.Of, item)
		}
		if err != nil {
			return err
		}
	}
	return end()
}

// Read reads a struct.
func Read[T ~byte](from Protocol[T]) (Tree, error) {
	fields := [][3]any{}
	if _, err := from.ReadStructBegin(); err != nil {
		return nil, err
	}
	for {
		_, kind, id, err := from.ReadFieldBegin()
		if err != nil {
			return nil, err
		}
		if kind == stop {
			break
		}
		value, err := read(from, byte(kind))
		if err = first(err, from.ReadFieldEnd()); err != nil {
			return nil, err
		}
		fields = append(fields, [3]any{id, byte(kind), value})
	}
	return got(fields, from.ReadStructEnd())
}

func read[T ~byte](from Protocol[T], kind byte) (json.RawMessage, error) {
	switch kind {
	case boolean:
		return got(from.ReadBool())
	case i8:
		number, err := from.ReadByte()
		return got(int8(number), err)
	case i16:
		return got(from.ReadI16())
	case i32:
		return got(from.ReadI32())
	case i64:
		return got(from.ReadI64())
	case double:
		return got(from.ReadDouble())
	case float:
		if from, ok := any(from).(floats); ok {
			return got(from.ReadFloat())
		}
	case text:
		data, err := from.ReadBinary()
		return got(hex.EncodeToString(data), err)
	case uuid:
		if from, ok := any(from).(uuids); ok {
			data, err := from.ReadUUID()
			return got(hex.EncodeToString(data[:]), err)
		}
	case record:
		return Read(from)
	case list, set, mapping:
		return got(readItems(from, kind))
	}
	return nil, fmt.Errorf("there is no type %d", kind)
}

func readItems[T ~byte](from Protocol[T], kind byte) (held items, err error) {
	var key, element T
	var size int
	end := from.ReadListEnd
	switch kind {
	case list:
		element, size, err = from.ReadListBegin()
	case set:
		element, size, err = from.ReadSetBegin()
		end = from.ReadSetEnd
	case mapping:
		key, element, size, err = from.ReadMapBegin()
		end = from.ReadMapEnd
	}
	held = items{byte(key), byte(element), []json.RawMessage{}}
	for ; size > 0 && err == nil; size-- {
		var item json.RawMessage
		if kind == mapping {
			var pair [2]json.RawMessage
			pair[0], err = read(from, held.Key)
			if err != nil {
				break
			}
			pair[1], err = read(from, held.Of)
			item, _ = json.Marshal(pair)
		} else {
			item, err = read(from, held.Of)
		}
		held.Items = append(held.Items, item)
	}
	return held, first(err, end())
}
