package gossip

import (
	"bytes"
	"testing"
)

// What introduces a node may have more behind its address.
//
// Requirement: FORM-004
func TestAnIntroductionMayHaveMoreBehindTheAddress(t *testing.T) {
	hello := append([]byte{12}, "h.test:1\x00more"...)

	hello[0] = byte(len(hello) - 1)
	if address, err := readHello(bytes.NewReader(hello)); err != nil || address != "h.test:1" {
		t.Errorf("got %q, %v", address, err)
	}
}
