// Package certs bounds what the verification of certificates costs, before any signature is
// checked. Every listener, dial and trust bundle asks it (rule S16 of docs/threats.md).
package certs
