// Package egress judges the addresses of outbound connections whose targets are chosen by
// others than this node's operator: agents' endpoints, documents of origins, bundle
// endpoints of peers. It is the only list of addresses in the program
// (docs/threats.md, rule S6).
//
// An address is judged when the connection is made, after the name was resolved, so that
// a second resolution to another address gains nothing:
//
//	dialer := net.Dialer{Control: egress.Control(egress.Anywhere)}
package egress
