package connect

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/roster-mesh/roster/cmd/roster/cli"
	"github.com/roster-mesh/roster/directory"
)

// ContextCommand returns the command that manages saved connections.
func ContextCommand(session *Session) *cobra.Command {
	return cli.Group("context", "Manage saved connections (address, certificate, key)",
		listContextsCommand(session),
		showContextCommand(session),
		setContextCommand(session),
		changeContextCommand(session, "use", "Make a context the current one", func(saved *contexts, name string) {
			saved.Current = name
		}),
		changeContextCommand(session, "remove", "Delete a context", func(saved *contexts, name string) {
			delete(saved.All, name)

			if saved.Current == name {
				saved.Current = ""
			}
		}),
	)
}

// completeContext completes the names of contexts in a shell.
func (d *Directory) completeContext(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
	saved, err := d.settings.store.read()
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}

	return saved.names(), cobra.ShellCompDirectiveNoFileComp
}

func listContextsCommand(session *Session) *cobra.Command {
	return &cobra.Command{
		Use:   "list",
		Short: "List the saved contexts",
		Args:  cli.Args(),
		RunE:  func(*cobra.Command, []string) error { return listContexts(session) },
	}
}

// A listedContext is one context as -o json prints it.
type listedContext struct {
	Name    string `json:"name"`
	Current bool   `json:"current"`
	Profile
}

func listContexts(session *Session) error {
	saved, err := session.settings.store.read()
	if err != nil {
		return err
	}

	list := struct {
		Contexts []listedContext `json:"contexts"`
	}{[]listedContext{}}

	t := cli.Table{Head: []string{"CONTEXT", "CURRENT", "ADDRESS", "CERT", "+DOMAIN", "+BUNDLE", "+KEY"}}
	for _, name := range saved.names() {
		profile := saved.All[name]

		mark := ""
		if name == saved.Current {
			mark = "*"
		}

		// The file may have a password in the address, and it is not for a screen.
		profile.Address = directory.HideUserinfo(profile.Address)
		list.Contexts = append(list.Contexts, listedContext{name, name == saved.Current, profile})
		t.Add(name, mark, profile.Address, profile.Cert, profile.Domain, profile.Bundle, profile.Key)
	}

	if len(t.Rows) == 0 {
		session.Note("No saved contexts. Save one: %s",
			session.CommandLine("context", "set", "NAME", "--address", "https://HOST"))
	}

	return session.PrintValue(list, "contexts", t)
}

func showContextCommand(session *Session) *cobra.Command {
	return &cobra.Command{
		Use:   "show",
		Short: "Show the connection settings in force and their origin",
		Long: `Show the connection settings in force and whether each comes from a flag, the
environment or the context. A flag wins over the environment, and the environment over
the current context. A context that --context names replaces the environment.`,
		Args: cli.Args(),
		RunE: func(*cobra.Command, []string) error { return showContext(session) },
	}
}

func showContext(session *Session) error {
	if err := session.UseContext(); err != nil {
		return err
	}

	type setting struct {
		Name  string `json:"name"`
		Value string `json:"value"`
		From  string `json:"from"` // flag, environment, context, or empty
	}
	list := struct {
		Settings []setting `json:"settings"`
	}{}

	t := cli.Table{Head: []string{"SETTING", "VALUE", "FROM"}}
	for _, definition := range definitions[1:] {
		value, origin := session.settings.valueAndOrigin(definition.flag)
		value = directory.HideUserinfo(value)
		list.Settings = append(list.Settings, setting{definition.flag, value, origin})
		t.Add(definition.flag, value, origin)
	}

	return session.PrintValue(list, "settings", t)
}

func setContextCommand(session *Session) *cobra.Command {
	return &cobra.Command{
		Use:   "set NAME",
		Short: "Save the given connection settings as a context",
		Long: `Save connection settings from flags and the environment as a context, or change one.
The first context that you save becomes the current one.`,
		Example: "  roster context set alpha --address https://ad.alpha.test:8400 --bundle alpha.pem --cert " +
			"me.pem --key me.key",
		Args: cli.Args("NAME"),
		RunE: func(_ *cobra.Command, args []string) error { return setContext(session, args[0]) },
	}
}

func setContext(session *Session, name string) error {
	saved, err := session.settings.store.read()
	if err != nil {
		return err
	}

	profile := saved.All[name]
	for _, definition := range definitions[1:] {
		value, origin := session.settings.valueAndOrigin(definition.flag)
		if origin == "" {
			// Without a flag or a variable, the saved value of the setting stays.
			continue
		}

		// Commands run in other directories, too, so files are saved by their absolute paths.
		if isFileSetting(definition.flag, value) {
			if value, err = filepath.Abs(value); err != nil {
				return err
			}

			if _, err := os.Stat(value); errors.Is(err, fs.ErrNotExist) {
				session.Note("Note: the file of --%s, %s, does not exist yet.", definition.flag, value)
			}
		}

		*profile.field(definition.flag) = value
	}

	// The address is checked as a command would use it, before it is saved.
	session.settings.selected = profile
	if _, err := session.BaseURL(); err != nil {
		return err
	}

	return session.settings.store.save(saved, name, profile)
}

// HasContext reports whether a context with that name is saved.
func (d *Directory) HasContext(name string) (bool, error) {
	saved, err := d.settings.store.read()
	_, exists := saved.All[name]

	return exists, err
}

// SaveContext saves a context. Its files are kept by their absolute paths. The first
// context that is saved becomes the current one.
func (d *Directory) SaveContext(name string, profile Profile) error {
	saved, err := d.settings.store.read()
	if err != nil {
		return err
	}

	for _, definition := range definitions[1:] {
		value := profile.field(definition.flag)
		if *value == "" || !isFileSetting(definition.flag, *value) {
			continue
		}

		if *value, err = filepath.Abs(*value); err != nil {
			return err
		}
	}

	return d.settings.store.save(saved, name, profile)
}

// isFileSetting reports whether the value of a setting is the path of a file.
func isFileSetting(flag, value string) bool {
	switch flag {
	case flagAddress, flagDomain, flagWorkloadAPI:
		return false
	case flagWIT:
		return value != "" && value != witOfWorkloadAPI
	}

	return value != ""
}

// changeContextCommand returns a command that changes one existing context.
func changeContextCommand(
	session *Session, verb, short string, change func(saved *contexts, name string),
) *cobra.Command {
	return &cobra.Command{
		Use:   verb + " NAME",
		Short: short,
		Args:  cli.Args("NAME"),

		ValidArgsFunction: session.completeContext,

		RunE: func(_ *cobra.Command, args []string) error {
			saved, err := session.settings.store.read()
			if err != nil {
				return err
			}

			if _, ok := saved.All[args[0]]; !ok {
				return cli.Failed(cli.ExitNotFound, "unknown context %q", args[0]).
					WithNext(session.CommandLine("context", "list"))
			}

			change(&saved, args[0])

			if _, origin := session.settings.valueAndOrigin("address"); origin == fromEnvironment {
				session.Note("ROSTER_ADDRESS is set and takes precedence over contexts: unset the ROSTER_ variables, " +
					"or give --context")
			}

			return session.settings.store.write(saved)
		},
	}
}
