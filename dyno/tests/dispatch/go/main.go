// An HTTPS server on Go's crypto/tls, whose tickets begin with no key name. It prints its address and answers every request with the same object.
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
	flag.Parse()

	pair, err := tls.LoadX509KeyPair(*certificate, *key)
	if err != nil {
		log.Fatal(err)
	}
	body, err := os.ReadFile(*object)
	if err != nil {
		log.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
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
		go serve(tls.Server(connection, config), body)
	}
}

func serve(connection *tls.Conn, body []byte) {
	defer connection.Close()
	reader := bufio.NewReader(connection)
	for last := false; !last; {
		for line := ""; line != "\r\n"; {
			var err error
			if line, err = reader.ReadString('\n'); err != nil {
				return
			}
			last = last || line == "Connection: close\r\n"
		}
		head := fmt.Sprintf("HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n", len(body))
		if _, err := connection.Write(append([]byte(head), body...)); err != nil {
			return
		}
	}
}
