// fbthrift's Go library: reads and writes messages of the calculator, serves and calls it; see calculator.Main.
package main

import (
	"bytes"
	"io"
	"log"

	"github.com/facebook/fbthrift/thrift/lib/go/thrift"
	_ "github.com/klauspost/compress/zstd" // for zstd.go, see thrift_go.py

	"wirescan/peers/thrift/calculator"
)

type library struct{}

var (
	written = thrift.NewMemoryBuffer() // the connection of Write
	writer  thrift.Protocol
)

func main() { calculator.Main(library{}) }

// protocol is the one of -transport and -compact.
func protocol(over thrift.Transport) thrift.Protocol {
	if *calculator.Transport == "header" {
		header := thrift.NewHeaderTransport(over)
		if !*calculator.Compact {
			header.SetProtocolID(thrift.ProtocolIDBinary)
		}
		for _, number := range calculator.ListedTransforms() {
			if err := header.AddTransform(thrift.TransformID(number)); err != nil {
				log.Fatal(err)
			}
		}
		return thrift.NewHeaderProtocol(header)
	}
	if *calculator.Transport == "framed" {
		over = thrift.NewFramedTransport(over)
	}
	if *calculator.Compact {
		return thrift.NewCompactProtocol(over)
	}
	return thrift.NewBinaryProtocolTransport(over)
}

func setHeaders(to thrift.Protocol, message calculator.Message) {
	header, ok := to.(*thrift.HeaderProtocol)
	if !ok {
		return
	}
	for key, value := range message.Headers {
		header.SetHeader(key, value)
	}
	for key, value := range message.Persistent {
		header.SetPersistentHeader(key, value)
	}
	header.SetIdentity(message.Identity)
	header.HeaderTransport().(*thrift.HeaderTransport).SetFlags(thrift.HeaderFlags(message.Flags))
}

func (library) Write(message calculator.Message) ([]byte, error) {
	if writer == nil {
		writer = protocol(written)
	}
	setHeaders(writer, message)
	err := writer.WriteMessageBegin(message.Method, thrift.MessageType(message.Type), message.Seqid)
	if err == nil {
		err = calculator.Write(writer, message.Fields)
	}
	if err == nil {
		err = writer.WriteMessageEnd()
	}
	if err == nil {
		err = writer.Flush()
	}
	data := bytes.Clone(written.Bytes())
	written.Reset()
	return data, err
}

func (library) Read(source io.Reader) calculator.Stream {
	stream := calculator.Stream{Messages: []calculator.Message{}}
	over := thrift.NewHeaderTransport(thrift.NewStreamTransportR(source))
	from := thrift.NewHeaderProtocol(over)
	for {
		name, kind, seqid, err := from.ReadMessageBegin()
		if closed, ok := err.(thrift.TransportException); ok && closed.TypeID() == thrift.END_OF_FILE {
			return stream
		}
		var fields calculator.Tree
		if err == nil {
			fields, err = calculator.Read(from.Protocol)
		}
		if err == nil {
			err = from.ReadMessageEnd()
		}
		if err != nil {
			stream.Error = err.Error()
			return stream
		}
		stream.Messages = append(stream.Messages, calculator.Message{
			Method: name, Type: int32(kind), Seqid: seqid, Fields: fields, Headers: over.ReadHeaders(),
			Flags: uint16(over.GetFlags()), Sequence: over.SeqID(), Protocol: int(over.ProtocolID())})
	}
}

// argument is a struct that is known when it has been read.
type argument struct{ tree calculator.Tree }

func (a *argument) Write(to thrift.Protocol) error { return calculator.Write(to, a.tree) }

func (a *argument) Read(from thrift.Protocol) (err error) {
	a.tree, err = calculator.Read(from)
	return err
}

type service struct{}

func (service) GetProcessorFunction(name string) (thrift.ProcessorFunction, error) {
	if _, known, _ := calculator.Call(name, calculator.Tree("[[1, 8, 1], [2, 8, 1]]")); !known {
		return nil, nil
	}
	return method(name), nil
}

type method string

func (method) Read(from thrift.Protocol) (thrift.Struct, thrift.Exception) {
	arguments := &argument{}
	err := arguments.Read(from)
	if err == nil {
		err = from.ReadMessageEnd()
	}
	return arguments, err
}

func (name method) Run(arguments thrift.Struct) (thrift.WritableStruct, thrift.ApplicationException) {
	result, _, err := calculator.Call(string(name), arguments.(*argument).tree)
	if err != nil {
		return nil, thrift.NewApplicationException(thrift.INTERNAL_ERROR, err.Error())
	}
	if result == nil {
		return nil, nil
	}
	return &argument{result}, nil
}

func (name method) Write(seqid int32, result thrift.WritableStruct, to thrift.Protocol) thrift.Exception {
	kind := thrift.REPLY
	if _, failed := result.(thrift.ApplicationException); failed {
		kind = thrift.EXCEPTION
	}
	err := to.WriteMessageBegin(string(name), kind, seqid)
	if err == nil {
		err = result.Write(to)
	}
	if err == nil {
		err = to.WriteMessageEnd()
	}
	if err == nil {
		err = to.Flush()
	}
	return err
}

func (library) Serve(listening func(string)) error {
	socket, err := thrift.NewServerSocket("127.0.0.1:0")
	if err == nil {
		err = socket.Listen()
	}
	if err != nil {
		return err
	}
	listening(socket.Addr().String())
	server := thrift.NewSimpleServer(service{}, socket,
		thrift.TransportFactories(thrift.NewHeaderTransportFactory(thrift.NewTransportFactory())),
		thrift.ProtocolFactories(thrift.NewHeaderProtocolFactory()))
	return server.AcceptLoop()
}

func (library) Connect(address string) (func(calculator.Message) calculator.Answer, func() error, error) {
	socket, err := thrift.NewSocket(thrift.SocketAddr(address))
	if err == nil {
		err = socket.Open()
	}
	if err != nil {
		return nil, nil, err
	}
	over := protocol(socket)
	client := thrift.NewClientConnWithProtocols(socket, over, over)
	call := func(message calculator.Message) (answer calculator.Answer) {
		setHeaders(over, message)
		kind := thrift.CALL
		if message.Method == calculator.Oneway {
			kind = thrift.ONEWAY
		}
		result := &argument{}
		err := client.SendMsg(message.Method, &argument{message.Fields}, kind)
		if err == nil && kind == thrift.CALL {
			err = client.RecvMsg(message.Method, result)
			if header, ok := over.(*thrift.HeaderProtocol); ok {
				answer.Headers = header.ReadHeaders()
			}
		}
		if err != nil {
			answer.Error = err.Error()
		}
		answer.Fields = result.tree
		return answer
	}
	return call, socket.Close, nil
}
