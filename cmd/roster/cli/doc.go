// Package cli has the parts that all commands of the command line share: the console with
// its output formats, failures with their exit codes, and the checks of arguments.
package cli
