// Receives with go-lumber's server, versions 1 and 2. The first line that it prints is its address; then follows a JSON
// array of events for each window, before the window is acknowledged.
package main

import (
	"bufio"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"flag"
	"fmt"
	"log"
	"net"
	"os"
	"time"

	"github.com/elastic/go-lumber/server"
)

var (
	address   = flag.String("address", "127.0.0.1:0", "to listen at; port 0 is any that is free")
	hold      = flag.Duration("hold", 0, "how long each window waits for its acknowledgement")
	keepalive = flag.Duration("keepalive", 3*time.Second, "between acknowledgements of 0 while a window waits")
	identity  = flag.String("identity", "", "PEM file of the server's key and certificate; speak TLS")
	authority = flag.String("authority", "", "PEM file of the authority that clients must have their certificate from")
)

func main() {
	flag.Parse()
	listener, err := net.Listen("tcp", *address)
	if err != nil {
		log.Fatalln(err)
	}
	fmt.Println(listener.Addr())
	if *identity != "" {
		listener = tls.NewListener(listener, config())
	}
	// A number of an event is not to become a float64.
	raw := func(text []byte, event interface{}) error {
		if !json.Valid(text) {
			return fmt.Errorf("not JSON: %q", text)
		}
		*event.(*interface{}) = json.RawMessage(append([]byte(nil), text...))
		return nil
	}
	running, err := server.NewWithListener(listener, server.V1(true), server.V2(true), server.JSONDecoder(raw),
		server.Keepalive(*keepalive))
	if err != nil {
		log.Fatalln(err)
	}
	out := bufio.NewWriterSize(os.Stdout, 1<<16)
	printed := json.NewEncoder(out)
	for window := range running.ReceiveChan() {
		if err := printed.Encode(window.Events); err != nil {
			log.Fatalln(err)
		}
		out.Flush()
		time.Sleep(*hold)
		window.ACK()
	}
}

func config() *tls.Config {
	own, err := tls.LoadX509KeyPair(*identity, *identity)
	if err != nil {
		log.Fatalln(err)
	}
	config := &tls.Config{Certificates: []tls.Certificate{own}}
	if *authority != "" {
		pem, err := os.ReadFile(*authority)
		config.ClientCAs, config.ClientAuth = x509.NewCertPool(), tls.RequireAndVerifyClientCert
		if err != nil || !config.ClientCAs.AppendCertsFromPEM(pem) {
			log.Fatalln("no authority:", err)
		}
	}
	return config
}
