// Writes ml_kem.txt, known answers of ML-KEM (FIPS 203) by Go's crypto/mlkem, for the client's decapsulation:
//
//	go run -ldflags=-checklinkname=0 ml_kem.go > ml_kem.txt
//
// Go exports decapsulation keys as seeds only; aws-lc takes the expanded form of FIPS 203 (dk of algorithm 16).
package main

import (
	"bytes"
	"crypto/mlkem"
	"crypto/mlkem/mlkemtest"
	"fmt"
	"os"
	"unsafe"
)

//go:linkname expanded768 crypto/internal/fips140/mlkem.TestingOnlyExpandedBytes768
func expanded768(key unsafe.Pointer) []byte

//go:linkname expanded1024 crypto/internal/fips140/mlkem.TestingOnlyExpandedBytes1024
func expanded1024(key unsafe.Pointer) []byte

func main() {
	seed := bytes.Repeat([]byte{0x5e, 0xed}, 32)
	random := bytes.Repeat([]byte{0xa1}, 32)
	fmt.Println("# Known answers of ML-KEM by Go's crypto/mlkem; ml_kem.go writes them.")
	fmt.Println("# `rejected` is the secret of the ciphertext with its first bit inverted.")

	key768, err := mlkem.NewDecapsulationKey768(seed)
	check(err)
	secret, ciphertext, err := mlkemtest.Encapsulate768(key768.EncapsulationKey(), random)
	check(err)
	inner768 := *(*unsafe.Pointer)(unsafe.Pointer(key768))
	write("ML-KEM-768", expanded768(inner768), ciphertext, secret, rejected(key768.Decapsulate, ciphertext))

	key1024, err := mlkem.NewDecapsulationKey1024(seed)
	check(err)
	secret, ciphertext, err = mlkemtest.Encapsulate1024(key1024.EncapsulationKey(), random)
	check(err)
	inner1024 := *(*unsafe.Pointer)(unsafe.Pointer(key1024))
	write("ML-KEM-1024", expanded1024(inner1024), ciphertext, secret, rejected(key1024.Decapsulate, ciphertext))
}

func rejected(decapsulate func([]byte) ([]byte, error), ciphertext []byte) []byte {
	changed := bytes.Clone(ciphertext)
	changed[0] ^= 1
	secret, err := decapsulate(changed)
	check(err)
	return secret
}

func write(name string, key, ciphertext, secret, rejected []byte) {
	fmt.Printf("\nkem = %s\nkey = %x\nciphertext = %x\n", name, key, ciphertext)
	fmt.Printf("secret = %x\nrejected = %x\n", secret, rejected)
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
