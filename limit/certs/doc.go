// Package certs bounds the cost of verifying certificates, before any signature is
// checked. Every listener, dial and trust bundle asks it (rule S16 of docs/threats.md).
package certs
