package client_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"time"

	"github.com/roster-mesh/roster/api/client"
)

// connect makes a client of a directory with two nodes. The examples have no
// directory to speak to: they are compiled, and not run.
func connect() (*client.Client, error) {
	config, err := client.LoadTLS(client.TLSFiles{
		Bundle: "bundle.pem", Domain: "alpha.example", Cert: "svid.pem", Key: "svid-key.pem",
	})
	if err != nil {
		return nil, err
	}

	return client.New(client.Config{
		Addresses: []string{"https://ad1.alpha.example:8400", "https://ad2.alpha.example:8400"},
		TLS:       config,
	})
}

// Register an agent, or replace its registration.
func ExampleClient_Register() {
	c, err := connect()
	if err != nil {
		slog.Error("cannot connect", "err", err)
		return
	}

	document := []byte(`{
		"base": "https://weather.example",
		"protocols": ["mcp"],
		"capabilities": [{"name": "forecast", "type": "tool", "description": "weather of the next days"}]
	}`)
	options := client.RegisterOptions{Lifetime: time.Hour}

	registered, err := c.Register(context.Background(), "weather-oslo", document, options)
	switch {
	case errors.Is(err, client.ErrConflict):
		slog.Error("another identity has the name", "err", err)
	case errors.Is(err, client.ErrInvalid):
		slog.Error("the document breaks a rule", "err", err) // with the member at fault
	case err != nil:
		slog.Error("cannot register", "err", err)
	default:
		fmt.Println("registered as", registered.RID)
	}
}

// Keep an agent registered as long as the program runs.
func ExampleKeeper_Run() {
	c, err := connect()
	if err != nil {
		slog.Error("cannot connect", "err", err)
		return
	}

	keeper := client.Keeper{
		Client:   c,
		Agent:    "weather-oslo",
		Document: []byte(`{"base": "https://weather.example"}`),
		Options:  client.RegisterOptions{Lifetime: 10 * time.Minute},
		Notify: func(e client.KeepEvent) {
			if e.Kind == client.KeepFailing {
				slog.Warn("cannot refresh the registration; trying again", "err", e.Err)
			}
		},
	}
	ctx, cancel := context.WithTimeout(context.Background(), 24*time.Hour)
	defer cancel()

	if err := keeper.Run(ctx); err != nil {
		slog.Error("the registration is lost", "err", err)
		return
	}

	if err := keeper.Remove(context.Background()); err != nil {
		slog.Warn("the registration stays until its deadline", "err", err)
	}
}

// Find agents by exact filters, in all domains of the mesh, page by page.
func ExampleClient_Lookup() {
	c, err := connect()
	if err != nil {
		slog.Error("cannot connect", "err", err)
		return
	}

	ctx := context.Background()

	page, err := c.Lookup(ctx, client.LookupOptions{CapName: []string{"forecast"}, Protocol: []string{"mcp"},
		Count: 100})
	for ; err == nil && page != nil; page, err = c.Next(ctx, page) {
		for _, agent := range page.Agents {
			fmt.Println(agent.Agent, agent.Base, "of", agent.Provenance.Authority)
		}
	}

	if err != nil {
		slog.Error("cannot look agents up", "err", err)
	}
}

// Find agents by what they can do, in words.
func ExampleClient_Discover() {
	c, err := connect()
	if err != nil {
		slog.Error("cannot connect", "err", err)
		return
	}

	question := client.DiscoverOptions{Query: "weather forecast for a city in Norway", Limit: 3}

	found, err := c.Discover(context.Background(), question)
	if err != nil {
		slog.Error("cannot discover agents", "err", err)
		return
	}

	for _, candidate := range found.Candidates {
		for _, binding := range candidate.Bindings {
			fmt.Printf("%.2f %s: %s at %s\n", candidate.Score, candidate.Name, binding.Protocol, binding.Endpoint)
		}
	}
}

// Follow the agents that match a filter. After a lost connection the watch resumes
// behind the last event that was read.
func ExampleClient_Watch() {
	c, err := connect()
	if err != nil {
		slog.Error("cannot connect", "err", err)
		return
	}

	ctx, cancel := context.WithTimeout(context.Background(), time.Hour)
	defer cancel()

	lastID := ""
	for ctx.Err() == nil {
		watch, err := c.Watch(ctx, client.LookupOptions{CapName: []string{"forecast"}}, lastID)
		if err != nil {
			slog.Error("cannot watch", "err", err)
			return
		}

		lastID = follow(watch)
	}
}

// follow reads a watch to its end, and returns where to resume.
func follow(watch *client.Watch) string {
	defer watch.Close()

	for {
		event, err := watch.Next()
		if err != nil {
			if !errors.Is(err, io.EOF) {
				slog.Warn("the watch broke off", "err", err)
			}

			return watch.ID()
		}

		switch event.Kind {
		case client.EventReset:
			slog.Info("forget all agents")
		case client.EventAdded, client.EventUpdated:
			slog.Info("an agent is there", "agent", event.Item.Agent, "base", event.Item.Base)
		case client.EventRemoved:
			slog.Info("an agent is gone", "agent", event.Removed.Agent, "why", event.Why)
		}
	}
}

// Read one registration, and say where it comes from and who vouches for it.
func ExampleClient_Get() {
	c, err := connect()
	if err != nil {
		slog.Error("cannot connect", "err", err)
		return
	}

	agent, err := c.Get(context.Background(), "weather-oslo")
	switch {
	case errors.Is(err, client.ErrNotFound):
		fmt.Println("no such agent")
		return
	case errors.Is(err, client.ErrAmbiguous):
		fmt.Println("several domains have an agent of this name")
		return
	case err != nil:
		slog.Error("cannot read the registration", "err", err)
		return
	}

	from := agent.Provenance
	fmt.Println("registered in", from.Authority, "at revision", from.Revision)
	fmt.Println("lives until", from.ExpiresAt)

	if from.Verification.State == "verified" {
		fmt.Println("received from", from.ReceivedFrom, "and verified by key", from.Verification.Key)
	}
}

// Tell failures apart, and read what the directory says of them.
func ExampleError() {
	c, err := connect()
	if err != nil {
		slog.Error("cannot connect", "err", err)
		return
	}

	_, err = c.Deregister(context.Background(), "weather-oslo")

	var refused *client.Error
	switch {
	case errors.Is(err, client.ErrOutcomeUnknown):
		fmt.Println("it may have been removed; ask again")
	case errors.Is(err, client.ErrUnavailable):
		fmt.Println("nothing was changed; try later")
	case errors.As(err, &refused):
		fmt.Println(refused.Code, refused.Detail, "request", refused.RequestID)
	}
}
