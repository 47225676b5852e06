package gateway_test

import (
	"net"
	"net/http"
	"net/url"
	"strconv"
	"testing"

	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"github.com/roster-mesh/roster/gateway"
)

// Permit replaces all that was permitted, at once: also for a server to which a connection is open,
// which would not be judged again.
//
// Requirement: WOA-018
func TestPermissionsAreReplaced(t *testing.T) {
	authority := newCA(t, "alpha.test")
	server := serve(t, authority.leaf(t, "localhost", spiffeid.ID{}), http.HandlerFunc(echo))
	guard := newGuard(t, gateway.GuardConfig{Roots: authority.pool()})

	at, err := url.Parse(server.URL)
	must(t, err)

	number, err := strconv.ParseUint(at.Port(), 10, 16)
	must(t, err)

	port := uint16(number)
	name := "https://" + net.JoinHostPort("localhost", at.Port())

	for _, step := range []struct {
		name    string
		permit  gateway.Permission
		address string
		rule    gateway.Rule // "" if the request may go
	}{
		{"nothing", gateway.Permission{}, name, gateway.RuleAddress},
		{"its network", gateway.Permission{Allow: loopback}, name, ""},
		{"nothing again", gateway.Permission{}, name, gateway.RuleAddress},
		{"its port", gateway.Permission{Allow: loopback, Ports: []uint16{port}}, name, ""},
		{"another port", gateway.Permission{Allow: loopback, Ports: []uint16{443}}, name, gateway.RulePort},
		{"its name", gateway.Permission{Hosts: []string{"localhost"}}, name, ""},
		{"its name, and not its address", gateway.Permission{Hosts: []string{"localhost"}}, server.URL,
			gateway.RuleAddress},
		{"another name", gateway.Permission{Hosts: []string{"agent.example"}}, name, gateway.RuleAddress},
	} {
		guard.Permit(step.permit)

		_, err := fetch(t, guard, step.address, gateway.Target{})

		if gateway.RuleOf(err) != step.rule || (err == nil) != (step.rule == "") {
			t.Errorf("%s: %v (rule %q), want %q", step.name, err, gateway.RuleOf(err), step.rule)
		}
	}
}

// A connection that was in use while the permission ended is not used again afterwards.
//
// Requirement: WOA-018
func TestAPermissionEndsForConnectionsInUse(t *testing.T) {
	authority := newCA(t, "alpha.test")
	began, goOn := make(chan struct{}), make(chan struct{})
	server := serve(t, authority.leaf(t, "localhost", spiffeid.ID{}),
		http.HandlerFunc(func(http.ResponseWriter, *http.Request) { began <- struct{}{}; <-goOn }))
	guard := newGuard(t, gateway.GuardConfig{Allow: loopback, Roots: authority.pool()})

	at, err := url.Parse(server.URL)
	must(t, err)

	name, ended := "https://"+net.JoinHostPort("localhost", at.Port()), make(chan error, 1)
	go func() { _, err := fetch(t, guard, name, gateway.Target{}); ended <- err }()

	<-began
	guard.Permit(gateway.Permission{})
	close(goOn)

	if err := <-ended; err != nil {
		t.Errorf("a request that was under way: %v", err)
	}

	_, err = fetch(t, guard, name, gateway.Target{})
	wantRule(t, "the next one", err, gateway.RuleAddress)
}
