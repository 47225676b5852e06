package main

import (
	"context"
	"path"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/spf13/cobra"

	apiclient "github.com/roster-mesh/roster/api/client"
	"github.com/roster-mesh/roster/cmd/roster/connect"
)

const (
	// completionTime bounds the completion of a word by the directory.
	completionTime = 2 * time.Second
	// maxCompletions bounds the words that are offered.
	maxCompletions = 100
)

// A completer returns the words of the directory that begin with a prefix.
type completer func(ctx context.Context, client *apiclient.Client, prefix string) ([]string, error)

// completeFromDirectory has arguments and flags of all commands completed by the directory:
// names of agents, domains that registered agents, protocols, peers, and members.
func completeFromDirectory(root *cobra.Command, session *connect.Session) {
	offer := func(words completer) cobra.CompletionFunc {
		return func(c *cobra.Command, args []string, prefix string) ([]string, cobra.ShellCompDirective) {
			return offered(c.Context(), session, words, prefix), cobra.ShellCompDirectiveNoFileComp
		}
	}
	first := func(words completer) cobra.CompletionFunc {
		return func(c *cobra.Command, args []string, prefix string) ([]string, cobra.ShellCompDirective) {
			if len(args) > 0 {
				return nil, cobra.ShellCompDirectiveDefault // a file, or nothing
			}

			return offer(words)(c, args, prefix)
		}
	}

	var walk func(c *cobra.Command)

	walk = func(c *cobra.Command) {
		for _, child := range c.Commands() {
			walk(child)
		}

		// The usage line tells the argument of a command, so that no list of commands has to agree with it.
		_, arguments, _ := strings.Cut(c.Use, " ")
		switch argument, _, _ := strings.Cut(strings.Trim(arguments, "[]"), " "); {
		case argument == "NAME|RID":
			c.ValidArgsFunction = first(agentNames)
		case argument == "DOMAIN" && (c.Parent().Name() == "peer" && c.Name() != "invite" || c.Name() == "bundle"):
			c.ValidArgsFunction = first(peerDomains)
		case argument == "ID" && c.Parent().Name() == "raft" && c.Name() != "admit":
			c.ValidArgsFunction = first(memberNames)
		}

		for flag, words := range map[string]completer{
			"agent": agentNames, "candidate": agentNames, "origin": originDomains, "protocol": protocolNames,
		} {
			if c.Flags().Lookup(flag) != nil {
				// The flag exists, so this can't fail.
				_ = c.RegisterFlagCompletionFunc(flag, offer(words))
			}
		}
	}
	walk(root)
}

// offered asks the directory for words. It returns nil if the directory doesn't answer in time, because a user who
// types a command line wants no error then.
func offered(ctx context.Context, session *connect.Session, words completer, prefix string) []string {
	if ctx == nil {
		ctx = context.Background()
	}

	ctx, cancel := context.WithTimeout(ctx, completionTime)
	defer cancel()

	// A completion has no reader for notes.
	session.Quiet = true
	found := make(chan []string, 1)

	// The Workload API may take longer than ctx, and the program ends then.
	go func() {
		var all []string
		if client, err := session.Client(); err == nil {
			all, _ = words(ctx, client, prefix)
		}

		found <- all
	}()

	select {
	case all := <-found:
		return matching(all, prefix)
	case <-ctx.Done():
		return nil
	}
}

// matching returns the words with a prefix, each once. Words that a shell could take for more
// than a plain word are left out: others chose them, and the shells' completion scripts
// insert them as they are, or evaluate them.
func matching(words []string, prefix string) []string {
	slices.Sort(words)
	words = slices.DeleteFunc(slices.Compact(words), func(word string) bool {
		return !strings.HasPrefix(word, prefix) || strings.HasPrefix(word, "-") || strings.ContainsFunc(word, isSpecial)
	})

	return words[:min(len(words), maxCompletions)]
}

// isSpecial reports whether a shell may treat a character specially: all but letters, digits
// and some punctuation.
func isSpecial(r rune) bool {
	return !unicode.IsLetter(r) && !unicode.IsDigit(r) && !strings.ContainsRune("._-@/:+", r)
}

func agentNames(ctx context.Context, client *apiclient.Client, prefix string) ([]string, error) {
	options := apiclient.LookupOptions{Count: maxCompletions}
	if prefix != "" {
		options.Agent = prefix + "*"
	}

	found, err := client.Lookup(ctx, options)
	if err != nil {
		return nil, err
	}

	var names []string
	for i := range found.Agents {
		names = append(names, found.Agents[i].Agent)
	}

	return names, nil
}

func originDomains(ctx context.Context, client *apiclient.Client, _ string) ([]string, error) {
	found, err := client.Lookup(ctx, apiclient.LookupOptions{Count: maxCompletions})
	if err != nil {
		return nil, err
	}

	var domains []string
	for i := range found.Agents {
		domains = append(domains, found.Agents[i].Provenance.Authority)
	}

	return domains, nil
}

// protocolNames returns the protocols of registered agents.
func protocolNames(ctx context.Context, client *apiclient.Client, _ string) ([]string, error) {
	found, err := client.Lookup(ctx, apiclient.LookupOptions{Count: maxCompletions})
	if err != nil {
		return nil, err
	}

	var protocols []string
	for i := range found.Agents {
		protocols = append(protocols, found.Agents[i].Protocols...)
	}

	return protocols, nil
}

// memberNames returns the last segments of the members' SPIFFE IDs, which commands take as well.
func memberNames(ctx context.Context, client *apiclient.Client, _ string) ([]string, error) {
	status, _, err := client.Operator().Raft(ctx)
	if err != nil {
		return nil, err
	}

	var names []string
	for _, member := range status.Peers {
		names = append(names, path.Base(member.ID))
	}

	return names, nil
}

func peerDomains(ctx context.Context, client *apiclient.Client, _ string) ([]string, error) {
	peers, _, err := client.Operator().Peers(ctx)
	if err != nil {
		return nil, err
	}

	var domains []string
	for i := range peers {
		domains = append(domains, peers[i].Domain)
	}

	return domains, nil
}
