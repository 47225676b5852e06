package cli

import (
	"errors"
	"slices"
	"strings"

	"github.com/spf13/cobra"
)

// A choice is the value of a flag that takes one of some words; empty if it is not given.
type choice struct {
	value *string
	words []string
}

// ChoiceFlag adds a flag that takes one of some words, and completes them.
func ChoiceFlag(c *cobra.Command, value *string, name, usage string, words ...string) {
	c.Flags().Var(&choice{value, words}, name, usage)
	Complete(c, name, words...)
}

// String returns the value.
func (o *choice) String() string {
	if o.value == nil {
		return ""
	}

	return *o.value
}

// Type names the flag's value in the help.
func (o *choice) Type() string { return "WORD" }

// Set checks the flag's value.
func (o *choice) Set(text string) error {
	if !slices.Contains(o.words, text) {
		return errors.New("must be one of " + strings.Join(o.words, ", "))
	}

	*o.value = text

	return nil
}

// Complete has a flag's value completed by words.
func Complete(c *cobra.Command, flag string, words ...string) {
	fixed := cobra.FixedCompletions(words, cobra.ShellCompDirectiveNoFileComp)
	if err := c.RegisterFlagCompletionFunc(flag, fixed); err != nil {
		// The flag exists and has no completion yet, so this is a mistake in the program.
		panic(err)
	}
}
