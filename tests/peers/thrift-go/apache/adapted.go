package main

import "github.com/apache/thrift/lib/go/thrift"

// adapted is a protocol without contexts, as the calculator needs it.
type adapted struct{ thrift.TProtocol }

func (p adapted) WriteStructBegin(name string) error {
	return p.TProtocol.WriteStructBegin(background, name)
}

func (p adapted) WriteFieldBegin(name string, kind thrift.TType, id int16) error {
	return p.TProtocol.WriteFieldBegin(background, name, kind, id)
}

func (p adapted) WriteMapBegin(key, value thrift.TType, size int) error {
	return p.TProtocol.WriteMapBegin(background, key, value, size)
}

func (p adapted) WriteListBegin(element thrift.TType, size int) error {
	return p.TProtocol.WriteListBegin(background, element, size)
}

func (p adapted) WriteSetBegin(element thrift.TType, size int) error {
	return p.TProtocol.WriteSetBegin(background, element, size)
}

func (p adapted) WriteStructEnd() error            { return p.TProtocol.WriteStructEnd(background) }
func (p adapted) WriteFieldEnd() error             { return p.TProtocol.WriteFieldEnd(background) }
func (p adapted) WriteFieldStop() error            { return p.TProtocol.WriteFieldStop(background) }
func (p adapted) WriteMapEnd() error               { return p.TProtocol.WriteMapEnd(background) }
func (p adapted) WriteListEnd() error              { return p.TProtocol.WriteListEnd(background) }
func (p adapted) WriteSetEnd() error               { return p.TProtocol.WriteSetEnd(background) }
func (p adapted) WriteBool(value bool) error       { return p.TProtocol.WriteBool(background, value) }
func (p adapted) WriteByte(value byte) error       { return p.TProtocol.WriteByte(background, int8(value)) }
func (p adapted) WriteI16(value int16) error       { return p.TProtocol.WriteI16(background, value) }
func (p adapted) WriteI32(value int32) error       { return p.TProtocol.WriteI32(background, value) }
func (p adapted) WriteI64(value int64) error       { return p.TProtocol.WriteI64(background, value) }
func (p adapted) WriteDouble(value float64) error  { return p.TProtocol.WriteDouble(background, value) }
func (p adapted) WriteBinary(value []byte) error   { return p.TProtocol.WriteBinary(background, value) }
func (p adapted) WriteUUID(value [16]byte) error   { return p.TProtocol.WriteUUID(background, value) }
func (p adapted) ReadStructBegin() (string, error) { return p.TProtocol.ReadStructBegin(background) }
func (p adapted) ReadStructEnd() error             { return p.TProtocol.ReadStructEnd(background) }
func (p adapted) ReadFieldEnd() error              { return p.TProtocol.ReadFieldEnd(background) }
func (p adapted) ReadMapEnd() error                { return p.TProtocol.ReadMapEnd(background) }
func (p adapted) ReadListEnd() error               { return p.TProtocol.ReadListEnd(background) }
func (p adapted) ReadSetEnd() error                { return p.TProtocol.ReadSetEnd(background) }
func (p adapted) ReadBool() (bool, error)          { return p.TProtocol.ReadBool(background) }
func (p adapted) ReadI16() (int16, error)          { return p.TProtocol.ReadI16(background) }
func (p adapted) ReadI32() (int32, error)          { return p.TProtocol.ReadI32(background) }
func (p adapted) ReadI64() (int64, error)          { return p.TProtocol.ReadI64(background) }
func (p adapted) ReadDouble() (float64, error)     { return p.TProtocol.ReadDouble(background) }
func (p adapted) ReadBinary() ([]byte, error)      { return p.TProtocol.ReadBinary(background) }

func (p adapted) ReadByte() (byte, error) {
	value, err := p.TProtocol.ReadByte(background)
	return byte(value), err
}

func (p adapted) ReadUUID() ([16]byte, error) {
	value, err := p.TProtocol.ReadUUID(background)
	return value, err
}

func (p adapted) ReadFieldBegin() (string, thrift.TType, int16, error) {
	return p.TProtocol.ReadFieldBegin(background)
}

func (p adapted) ReadMapBegin() (thrift.TType, thrift.TType, int, error) {
	return p.TProtocol.ReadMapBegin(background)
}

func (p adapted) ReadListBegin() (thrift.TType, int, error) {
	return p.TProtocol.ReadListBegin(background)
}

func (p adapted) ReadSetBegin() (thrift.TType, int, error) {
	return p.TProtocol.ReadSetBegin(background)
}
