// Apache's Go library: reads and writes messages of the calculator, serves and calls it; see calculator.Main.
package main

import (
	"bytes"
	"context"
	"errors"
	"io"

	"github.com/apache/thrift/lib/go/thrift"

	"wirescan/peers/thrift/calculator"
)

var background = context.Background()

type library struct{}

func main() { calculator.Main(library{}) }

func configuration() *thrift.TConfiguration {
	protocol := thrift.THeaderProtocolBinary
	if *calculator.Compact {
		protocol = thrift.THeaderProtocolCompact
	}
	var transforms []thrift.THeaderTransformID
	for _, number := range calculator.ListedTransforms() {
		transforms = append(transforms, thrift.THeaderTransformID(number))
	}
	return &thrift.TConfiguration{THeaderProtocolID: &protocol, THeaderTransforms: transforms}
}

// protocol is the one of -transport and -compact, without the service.
func protocol(over thrift.TTransport) thrift.TProtocol {
	settings := configuration()
	if *calculator.Transport == "header" {
		return thrift.NewTHeaderProtocolConf(over, settings)
	}
	if *calculator.Transport == "framed" {
		over = thrift.NewTFramedTransportConf(over, settings)
	}
	if *calculator.Compact {
		return thrift.NewTCompactProtocolConf(over, settings)
	}
	return thrift.NewTBinaryProtocolConf(over, settings)
}

// multiplexed gives a protocol the service's name.
func multiplexed(inner thrift.TProtocol) thrift.TProtocol {
	if *calculator.Service == "" {
		return inner
	}
	return thrift.NewTMultiplexedProtocol(inner, *calculator.Service)
}

func setHeaders(to thrift.TProtocol, message calculator.Message) {
	if header, ok := to.(*thrift.THeaderProtocol); ok {
		header.ClearWriteHeaders()
		for key, value := range message.Headers {
			header.SetWriteHeader(key, value)
		}
		header.Transport().(*thrift.THeaderTransport).Flags = uint32(message.Flags)
	}
}

func (library) Write(message calculator.Message) ([]byte, error) {
	written := thrift.NewTMemoryBuffer()
	inner := protocol(written)
	setHeaders(inner, message)
	err := send(multiplexed(inner), message)
	return bytes.Clone(written.Bytes()), err
}

func send(to thrift.TProtocol, message calculator.Message) error {
	kind := thrift.TMessageType(message.Type)
	if err := to.WriteMessageBegin(background, message.Method, kind, message.Seqid); err != nil {
		return err
	}
	if err := calculator.Write(adapted{to}, message.Fields); err != nil {
		return err
	}
	return errors.Join(to.WriteMessageEnd(background), to.Flush(background))
}

func (library) Read(source io.Reader) calculator.Stream {
	stream := calculator.Stream{Messages: []calculator.Message{}}
	from := thrift.NewTHeaderProtocolConf(thrift.NewStreamTransportR(source), &thrift.TConfiguration{})
	over := from.Transport().(*thrift.THeaderTransport)
	for {
		message, err := receive(from)
		if errors.Is(err, io.EOF) && message.Method == "" {
			return stream // also where a frame is cut: the library tells no more
		}
		if err != nil {
			stream.Error = err.Error()
			return stream
		}
		message.Headers, message.Flags = over.GetReadHeaders(), uint16(over.Flags)
		message.Sequence, message.Protocol = uint32(over.SequenceID), int(over.Protocol())
		stream.Messages = append(stream.Messages, message)
	}
}

func receive(from thrift.TProtocol) (message calculator.Message, err error) {
	var kind thrift.TMessageType
	message.Method, kind, message.Seqid, err = from.ReadMessageBegin(background)
	message.Type = int32(kind)
	if err == nil {
		message.Fields, err = calculator.Read(adapted{from})
	}
	if err == nil {
		err = from.ReadMessageEnd(background)
	}
	return message, err
}

// argument is a struct that is known when it has been read.
type argument struct{ tree calculator.Tree }

func (a *argument) Write(_ context.Context, to thrift.TProtocol) error {
	return calculator.Write(adapted{to}, a.tree)
}

func (a *argument) Read(_ context.Context, from thrift.TProtocol) (err error) {
	a.tree, err = calculator.Read(adapted{from})
	return err
}

// service is a processor of every method, also of those that are not there.
type service struct{ thrift.TProcessor }

func (service) Process(ctx context.Context, in, out thrift.TProtocol) (bool, thrift.TException) {
	message, err := receive(in)
	if err != nil {
		return false, thrift.WrapTException(err)
	}
	if trace, ok := thrift.GetHeader(ctx, "trace"); ok {
		helper, _ := thrift.GetResponseHelper(ctx)
		helper.SetHeader("trace", trace)
	}
	result, known, err := calculator.Call(message.Method, message.Fields)
	var answer thrift.TStruct = &argument{result}
	kind := thrift.TMessageType(thrift.REPLY)
	switch {
	case !known:
		kind = thrift.EXCEPTION
		answer = thrift.NewTApplicationException(thrift.UNKNOWN_METHOD, "Unknown function "+message.Method)
	case err != nil:
		kind, answer = thrift.EXCEPTION, thrift.NewTApplicationException(thrift.INTERNAL_ERROR, err.Error())
	case result == nil:
		return true, nil
	}
	err = errors.Join(out.WriteMessageBegin(ctx, message.Method, kind, message.Seqid), answer.Write(ctx, out),
		out.WriteMessageEnd(ctx), out.Flush(ctx))
	return err == nil, thrift.WrapTException(err)
}

func (library) Serve(listening func(string)) error {
	socket, err := thrift.NewTServerSocket("127.0.0.1:0")
	if err == nil {
		err = socket.Listen()
	}
	if err != nil {
		return err
	}
	listening(socket.Addr().String())
	processor := thrift.NewTMultiplexedProcessor()
	processor.RegisterProcessor("Calculator", service{})
	processor.RegisterDefault(service{})
	settings := &thrift.TConfiguration{}
	return thrift.NewTSimpleServer4(processor, socket, thrift.NewTHeaderTransportFactoryConf(nil, settings),
		thrift.NewTHeaderProtocolFactoryConf(settings)).Serve()
}

func (library) Connect(address string) (func(calculator.Message) calculator.Answer, func() error, error) {
	socket := thrift.NewTSocketConf(address, configuration())
	inner := protocol(socket)
	client := thrift.NewTStandardClient(inner, multiplexed(inner))
	call := func(message calculator.Message) (answer calculator.Answer) {
		ctx := background
		var keys []string
		for key, value := range message.Headers {
			ctx, keys = thrift.SetHeader(ctx, key, value), append(keys, key)
		}
		ctx = thrift.SetWriteHeaderList(ctx, keys)
		result := &argument{}
		var expected thrift.TStruct = result
		if message.Method == calculator.Oneway {
			expected = nil
		}
		meta, err := client.Call(ctx, message.Method, &argument{message.Fields}, expected)
		answer = calculator.Answer{Fields: result.tree, Headers: meta.Headers}
		if err != nil {
			answer.Error = err.Error()
		}
		return answer
	}
	return call, inner.Transport().Close, socket.Open()
}
