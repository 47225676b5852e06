package config

import "testing"

// A witness in clear is on this host alone, with or without a port.
func TestWitnessURLs(t *testing.T) {
	for text, want := range map[string]bool{
		"https://w.example/prefix": true, "http://127.0.0.1:81/prefix": true, "http://127.0.0.1/prefix": true,
		"http://[::1]/prefix": true, "http://[::1]:81": true, "http://localhost": true,
		"http://w.example": false, "http://w.example:81": false, "http://192.0.2.1/prefix": false,
		"http://[2001:db8::1]": false, "http://127.0.0.1/prefix/": false,
	} {
		if got := isWitnessURL(text); got != want {
			t.Errorf("%s: %t, want %t", text, got, want)
		}
	}
}
