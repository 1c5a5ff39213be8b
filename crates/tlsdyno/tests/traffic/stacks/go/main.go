// An HTTPS server on Go's crypto/tls, whose tickets begin with no key name. It prints its address and answers every request with the same object.
// With -log it says of each request, in one line: r or . (resumed or not), protocol, cipher, number of the request on its connection.
package main

import (
	"bufio"
	"crypto/tls"
	"flag"
	"fmt"
	"log"
	"net"
	"os"
)

func main() {
	certificate := flag.String("certificate", "", "PEM file of the certificate")
	key := flag.String("key", "", "PEM file of its key")
	object := flag.String("object", "", "file that answers every request")
	address := flag.String("listen", "127.0.0.1:0", "where it listens")
	path := flag.String("log", "", "file for a line about each request")
	flag.Parse()

	pair, err := tls.LoadX509KeyPair(*certificate, *key)
	if err != nil {
		log.Fatal(err)
	}
	body, err := os.ReadFile(*object)
	if err != nil {
		log.Fatal(err)
	}
	var requests *os.File
	if *path != "" {
		if requests, err = os.OpenFile(*path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600); err != nil {
			log.Fatal(err)
		}
	}
	listener, err := net.Listen("tcp", *address)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(listener.Addr())
	config := &tls.Config{Certificates: []tls.Certificate{pair}}
	for {
		connection, err := listener.Accept()
		if err != nil {
			log.Fatal(err)
		}
		go serve(tls.Server(connection, config), body, requests)
	}
}

func serve(connection *tls.Conn, body []byte, requests *os.File) {
	defer connection.Close()
	reader := bufio.NewReader(connection)
	for number, last := 1, false; !last; number++ {
		for line := ""; line != "\r\n"; {
			var err error
			if line, err = reader.ReadString('\n'); err != nil {
				return
			}
			last = last || line == "Connection: close\r\n"
		}
		if requests != nil {
			// Before the answer, so that whoever has that finds the line.
			fmt.Fprintln(requests, said(connection.ConnectionState()), number)
		}
		head := fmt.Sprintf("HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n", len(body))
		if _, err := connection.Write(append([]byte(head), body...)); err != nil {
			return
		}
	}
}

func said(state tls.ConnectionState) string {
	resumed := "."
	if state.DidResume {
		resumed = "r"
	}
	version := map[uint16]string{tls.VersionTLS12: "TLSv1.2", tls.VersionTLS13: "TLSv1.3"}[state.Version]
	return resumed + " " + version + " " + tls.CipherSuiteName(state.CipherSuite)
}
