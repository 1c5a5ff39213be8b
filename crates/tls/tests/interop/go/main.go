// A server on Go's crypto/tls for the interoperation tests. It prints one line per connection: version, suite, group (0: none) and whether the
// session was resumed, then answers requests of four bytes (the big-endian length of the answer) until the client closes.
package main

import (
	"crypto/tls"
	"encoding/binary"
	"flag"
	"fmt"
	"io"
	"log"
	"net"
	"reflect"
	"strings"
)

func main() {
	socket := flag.String("socket", "", "path of the Unix socket to listen on")
	certificate := flag.String("certificate", "", "PEM file of the certificate")
	key := flag.String("key", "", "PEM file of its key")
	suite := flag.Uint("suite", 0, "TLS 1.2 suite; 0: TLS 1.3")
	group := flag.Uint("group", 0, "the only group")
	flag.Parse()

	pair, err := tls.LoadX509KeyPair(*certificate, *key)
	if err != nil {
		log.Fatal(err)
	}
	config := &tls.Config{
		Certificates:     []tls.Certificate{pair},
		MinVersion:       tls.VersionTLS12,
		CurvePreferences: []tls.CurveID{tls.CurveID(*group)},
	}
	if *suite != 0 {
		config.MaxVersion = tls.VersionTLS12
		config.CipherSuites = []uint16{uint16(*suite)}
	}
	listener, err := net.Listen("unix", *socket)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("listening")
	for {
		connection, err := listener.Accept()
		if err != nil {
			log.Fatal(err)
		}
		serve(tls.Server(connection, config), uint16(*group))
	}
}

// The group of a handshake that allowed but one. Go before 1.25 does not say it.
func agreed(state tls.ConnectionState, only uint16) uint16 {
	if said := reflect.ValueOf(state).FieldByName("CurveID"); said.IsValid() {
		return uint16(said.Uint())
	}
	if strings.HasPrefix(tls.CipherSuiteName(state.CipherSuite), "TLS_RSA_") {
		return 0
	}
	return only
}

func serve(connection *tls.Conn, only uint16) {
	defer connection.Close()
	if err := connection.Handshake(); err != nil {
		fmt.Println("failed:", err)
		return
	}
	state := connection.ConnectionState()
	group := agreed(state, only)
	if state.Version == tls.VersionTLS12 && state.DidResume {
		group = 0 // Go has that of the session's first handshake.
	}
	fmt.Printf("%#04x %#04x %#04x %v\n", state.Version, state.CipherSuite, group, state.DidResume)
	var request [4]byte
	for {
		if _, err := io.ReadFull(connection, request[:]); err != nil {
			return
		}
		answer := make([]byte, binary.BigEndian.Uint32(request[:]))
		for index := range answer {
			answer[index] = byte(index * 7 % 251)
		}
		if _, err := connection.Write(answer); err != nil {
			return
		}
	}
}
