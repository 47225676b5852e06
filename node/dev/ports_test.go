package dev

import (
	"net"
	"testing"
)

// The ports of a mesh are its own from the moment they are chosen, though its nodes start
// later: others choose theirs meanwhile.
func TestChosenPortsAreHeld(t *testing.T) {
	p, err := choosePorts(0, 2)
	must(t, err)
	defer p.close()
	free := func(addr string) bool {
		l, err := net.Listen("tcp", addr)
		if err == nil {
			err = l.Close()
		}

		return err == nil
	}
	chosen := append(append([]string(nil), p.apis...), p.rest...)
	n := &Node{API: "https://" + p.nextAPI(), Admin: "http://" + p.next(), Gossip: p.next(), Raft: p.next()}

	for _, addr := range chosen {
		if free(addr) {
			t.Errorf("%s was chosen, and anybody may have it", addr)
		}
	}

	p.letGo(n)

	left := 0
	for _, addr := range chosen {
		if !free(addr) {
			left++
		}
	}

	if left != 4 {
		t.Errorf("%d of 8 are held when a node may have its four", left)
	}
}
