package dnssd

import (
	"errors"
	"net"
	"time"

	"golang.org/x/net/dns/dnsmessage"
)

// The groups of multicast DNS (RFC 6762, 3).
var groups = map[string]*net.UDPAddr{
	"udp4": {IP: net.IPv4(224, 0, 0, 251), Port: 5353},
	"udp6": {IP: net.ParseIP("ff02::fb"), Port: 5353},
}

// sendTime bounds the sending of one packet.
const sendTime = time.Second

// recordTTL is how long others keep a record, in seconds: that of the responder's answers.
const recordTTL = 120

// cacheFlush marks records of which there is one set alone, its owner's (RFC 6762, 10.2).
const cacheFlush = 1 << 15

// announcement returns the packet by which caches learn a service unasked (RFC 6762, 8.3).
func announcement(s service, addresses []net.IP) ([]byte, error) {
	pointer, err := pointerTo(s.instance, recordTTL)
	if err != nil {
		return nil, err
	}

	host, err := dnsmessage.NewName(s.instance + ".local.")
	if err != nil {
		return nil, err
	}

	// Other instances share the name of the PTR record, so it alone lacks the cache-flush bit.
	answers := []dnsmessage.Resource{pointer}
	add := func(name dnsmessage.Name, body dnsmessage.ResourceBody) {
		answers = append(answers, dnsmessage.Resource{
			Header: dnsmessage.ResourceHeader{Name: name, Class: dnsmessage.ClassINET | cacheFlush, TTL: recordTTL},
			Body:   body,
		})
	}

	name := pointer.Body.(*dnsmessage.PTRResource).PTR
	add(name, &dnsmessage.SRVResource{Priority: 10, Weight: 1, Port: uint16(s.port), Target: host})
	add(name, &dnsmessage.TXTResource{TXT: s.txt})

	for _, ip := range addresses {
		if four := ip.To4(); four != nil {
			add(host, &dnsmessage.AResource{A: [4]byte(four)})
		} else {
			add(host, &dnsmessage.AAAAResource{AAAA: [16]byte(ip.To16())})
		}
	}

	message := dnsmessage.Message{
		Header:  dnsmessage.Header{Response: true, Authoritative: true},
		Answers: answers,
	}

	return message.Pack()
}

// goodbye returns the packet by which caches forget a service at once: its PTR record with
// a TTL of 0 (RFC 6762, 10.1).
func goodbye(instance string) ([]byte, error) {
	pointer, err := pointerTo(instance, 0)
	if err != nil {
		return nil, err
	}

	message := dnsmessage.Message{
		Header:  dnsmessage.Header{Response: true, Authoritative: true},
		Answers: []dnsmessage.Resource{pointer},
	}

	return message.Pack()
}

// pointerTo returns the PTR record of a service's instance.
func pointerTo(instance string, ttl uint32) (dnsmessage.Resource, error) {
	service, err1 := dnsmessage.NewName(serviceType + ".local.")
	name, err2 := dnsmessage.NewName(instance + "." + serviceType + ".local.")

	return dnsmessage.Resource{
		Header: dnsmessage.ResourceHeader{Name: service, Class: dnsmessage.ClassINET, TTL: ttl},
		Body:   &dnsmessage.PTRResource{PTR: name},
	}, errors.Join(err1, err2)
}

// send sends a packet on an interface, to each address family that it has. A family that it
// lacks is no error.
func send(packet []byte, at net.Interface) (err error) {
	sent := false

	for network, group := range groups {
		// Receivers ignore packets from other ports than the group's (RFC 6762, 6).
		conn, listening := net.ListenMulticastUDP(network, &at, group)
		if listening != nil {
			err = errors.Join(err, listening)
			continue
		}

		// A link-local group needs its interface.
		to := *group
		if network == "udp6" {
			to.Zone = at.Name
		}

		_ = conn.SetWriteDeadline(time.Now().Add(sendTime))
		_, sending := conn.WriteToUDP(packet, &to)
		sent = sent || sending == nil
		err = errors.Join(err, sending, conn.Close())
	}

	if sent {
		return nil
	}

	return err
}
