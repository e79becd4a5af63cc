package calculator

import (
	"bufio"
	"encoding/hex"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"log"
	"os"
)

// Message is one that is written or was read.
type Message struct {
	Method     string            `json:"method"`
	Type       int32             `json:"type"`
	Seqid      int32             `json:"seqid"`
	Fields     Tree              `json:"fields"`
	Headers    map[string]string `json:"headers,omitempty"`
	Persistent map[string]string `json:"persistent,omitempty"` // to write; of fbthrift only
	Identity   string            `json:"identity,omitempty"`   // ... and so is this
	Flags      uint16            `json:"flags"`
	Sequence   uint32            `json:"sequence"` // that of the header; both libraries set it from the seqid
	Protocol   int               `json:"protocol"`
}

// Answer is what the client has got for a call.
type Answer struct {
	Fields  Tree              `json:"fields,omitempty"`
	Error   string            `json:"error,omitempty"`
	Headers map[string]string `json:"headers,omitempty"`
}

// Stream is what was read of a line: messages, and the error that ended it.
type Stream struct {
	Messages []Message `json:"messages"`
	Error    string    `json:"error,omitempty"`
}

// Oneway is the method that has no answer.
const Oneway = "notify"

// Failure is what the method "fail" ends with.
const Failure = "it is told to fail"

// Call does what the service has been asked for. known is false where there is no such method; a nil result without an
// error is that of a oneway method.
func Call(method string, arguments Tree) (result Tree, known bool, err error) {
	var numbers [2]int32
	if method == "add" || method == "divide" {
		var fields [2][3]json.RawMessage
		err := json.Unmarshal(arguments, &fields)
		for at := range numbers {
			err = first(err, json.Unmarshal(fields[at][2], &numbers[at]))
		}
		if err != nil {
			return nil, true, err
		}
	}
	switch method {
	case "add":
		return tree("[[0, %d, %d]]", i32, numbers[0]+numbers[1]), true, nil
	case "divide":
		if numbers[1] == 0 { // an exception that the IDL would declare is a field of the result
			why := hex.EncodeToString([]byte("division by zero"))
			return tree(`[[1, %d, [[1, %d, "%s"]]]]`, record, text, why), true, nil
		}
		return tree("[[0, %d, %d]]", i32, numbers[0]/numbers[1]), true, nil
	case "echo":
		return tree("[[0, %d, %s]]", record, arguments), true, nil
	case "fail":
		return nil, true, fmt.Errorf(Failure)
	}
	return nil, method == Oneway, nil
}

func tree(format string, values ...any) Tree {
	return Tree(fmt.Sprintf(format, values...))
}

// Peer is a library.
type Peer interface {
	// Write gives the bytes of a message, as one more of a connection.
	Write(Message) ([]byte, error)
	// Read gives the messages of a stream.
	Read(io.Reader) Stream
	// Serve listens, says where, and answers until it is ended.
	Serve(listening func(address string)) error
	// Connect gives a function that sends a call and awaits its answer.
	Connect(address string) (call func(Message) Answer, hangUp func() error, err error)
}

// Options of the command line are those of a connection.
var (
	Compact    = flag.Bool("compact", false, "the compact protocol, not the binary one")
	Transport  = flag.String("transport", "header", "header, framed or unframed")
	Transforms = flag.String("transforms", "[]", "their numbers, in the order of the header, in JSON")
	Service    = flag.String("service", "", "of a multiplexed call")
	address    = flag.String("to", "", "the address to call")
)

// ListedTransforms are the numbers of -transforms.
func ListedTransforms() []int32 {
	var numbers []int32
	check(json.Unmarshal([]byte(*Transforms), &numbers))
	return numbers
}

// Main does what the last argument says:
//
//	write   for each message, a line of JSON, a line of its bytes in hexadecimal
//	read    for each stream, a line of hexadecimal, a line of JSON: what was read
//	serve   print the address, and answer
//	call    for each message a line of JSON: what was answered
func Main(peer Peer) {
	flag.Parse()
	out := bufio.NewWriter(os.Stdout)
	defer out.Flush()
	answer := func(value any) { check(json.NewEncoder(out).Encode(value)) }
	switch verb := flag.Arg(0); verb {
	case "write":
		lines(func(line []byte) {
			data, err := peer.Write(message(line))
			check(err)
			fmt.Fprintln(out, hex.EncodeToString(data))
		})
	case "read":
		lines(func(line []byte) {
			source, sink := io.Pipe()
			data, err := hex.DecodeString(string(line))
			check(err)
			go func() {
				sink.Write(data)
				sink.Close()
			}()
			answer(peer.Read(source))
			source.Close()
		})
	case "serve":
		check(peer.Serve(func(address string) { fmt.Println(address) }))
	case "call":
		call, hangUp, err := peer.Connect(*address)
		check(err)
		lines(func(line []byte) { answer(call(message(line))) })
		check(hangUp())
	default:
		log.Fatalf("there is no verb %q", verb)
	}
}

func message(line []byte) (given Message) {
	check(json.Unmarshal(line, &given))
	return given
}

// lines gives each line of standard input.
func lines(do func([]byte)) {
	scanner := bufio.NewScanner(os.Stdin)
	scanner.Buffer(nil, 1<<28)
	for scanner.Scan() {
		do(scanner.Bytes())
	}
	check(scanner.Err())
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
