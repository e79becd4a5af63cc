// Sends the JSON lines of standard input with go-lumber's client, and prints a JSON object of counts at the end.
//
// With -retry it is what every at-least-once shipper is: when a connection fails it opens another, and sends again
// all that was not acknowledged.
package main

import (
	"bufio"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"flag"
	"log"
	"net"
	"os"
	"sync"
	"time"

	client "github.com/elastic/go-lumber/client/v2"
)

var (
	to        = flag.String("to", "", "address of the server")
	batch     = flag.Int("batch", 2048, "events in a window")
	level     = flag.Int("level", 0, "of zlib, 0 to 9; 0 is uncompressed")
	pipeline  = flag.Int("pipeline", 0, "windows in flight; 0 waits for each acknowledgement")
	timeout   = flag.Duration("timeout", 30*time.Second, "of every read and write")
	retry     = flag.Bool("retry", false, "connect again, for ever, and send again what was not acknowledged")
	authority = flag.String("authority", "", "PEM file of the authority; speak TLS")
	identity  = flag.String("identity", "", "PEM file of the client's key and certificate")
)

func main() {
	flag.Parse()
	windows, events := read()
	connections, sent := 0, 0
	for len(windows) > 0 {
		cl, err := connect()
		if err == nil {
			connections++
			var acked, tried int
			acked, tried, err = ship(cl, windows)
			windows, sent = windows[acked:], sent+tried
		}
		if err != nil {
			log.Println(err)
			if !*retry {
				os.Exit(1)
			}
			time.Sleep(50 * time.Millisecond)
		}
	}
	json.NewEncoder(os.Stdout).Encode(map[string]int{"events": events, "connections": connections, "windows": sent})
}

// read returns the events of standard input in windows, and how many there are.
func read() (windows [][]interface{}, events int) {
	lines := bufio.NewReaderSize(os.Stdin, 1<<16)
	var window []interface{}
	for {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			break
		}
		window = append(window, json.RawMessage(line))
		events++
		if len(window) == *batch {
			windows, window = append(windows, window), nil
		}
	}
	if len(window) > 0 {
		windows = append(windows, window)
	}
	return windows, events
}

func connect() (*client.Client, error) {
	dialer := &net.Dialer{Timeout: *timeout}
	dial := dialer.Dial
	if *authority != "" {
		config := &tls.Config{RootCAs: x509.NewCertPool()}
		pem, err := os.ReadFile(*authority)
		if err != nil || !config.RootCAs.AppendCertsFromPEM(pem) {
			log.Fatalln("no authority:", err)
		}
		if *identity != "" {
			own, err := tls.LoadX509KeyPair(*identity, *identity)
			if err != nil {
				log.Fatalln(err)
			}
			config.Certificates = []tls.Certificate{own}
		}
		dial = func(network, address string) (net.Conn, error) {
			return tls.DialWithDialer(dialer, network, address, config)
		}
	}
	return client.DialWith(dial, *to, client.CompressionLevel(*level), client.Timeout(*timeout))
}

// ship sends the windows on one connection, until all are acknowledged or it fails. It returns how many were
// acknowledged, and how many were sent.
func ship(cl *client.Client, windows [][]interface{}) (acked, tried int, err error) {
	if *pipeline == 0 {
		one, _ := client.NewSyncClientWith(cl)
		defer one.Close()
		for _, window := range windows {
			tried++
			if _, err = one.Send(window); err != nil {
				return acked, tried, err
			}
			acked++
		}
		return acked, tried, nil
	}
	many, err := client.NewAsyncClientWith(cl, *pipeline)
	if err != nil {
		return 0, 0, err
	}
	var answers sync.WaitGroup
	var failed error // of the acknowledgements; they come in order, from one goroutine
	answer := func(_ uint32, err error) {
		if err == nil && failed == nil {
			acked++
		} else if failed == nil {
			failed = err
		}
		answers.Done()
	}
	for _, window := range windows {
		tried++
		answers.Add(1)
		if err = many.Send(answer, window); err != nil {
			break
		}
	}
	if err == nil {
		answers.Wait()
	}
	many.Close()
	answers.Wait()
	if err == nil {
		err = failed
	}
	return acked, tried, err
}
