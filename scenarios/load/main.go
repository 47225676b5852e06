// Command load is Roster's load generator and benchmark. It starts real `roster serve`
// processes on loopback and, on the same machine and in the same run, the yardsticks: an
// etcd cluster and a bare net/http handler. It prints a table of ratios, and with -json
// the same with every round's figures.
//
//	go run ./scenarios/load                              # some minutes, small sizes
//	go run ./scenarios/load -full                        # the full sizes; long
//	go run ./scenarios/load -sections registrations,lookups -time 10s -rounds 5
//
// Both sides of a comparison are measured in turns (A B A B), and the ratio is the median
// over the rounds, because the speed of a shared machine drifts. A missed bar is reported
// and isn't an error; only a failed measurement is.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/roster-mesh/roster/scenarios/launch"
)

// A section is a group of measurements with a time limit.
type section struct {
	name  string
	limit time.Duration
	run   func(ctx context.Context, b *bench) error
	many  bool // it measures the filled domain, which the first such section fills
}

var sections = []section{
	{"registrations", 10 * time.Minute, registrations, false},
	{"refreshes", 5 * time.Minute, refreshes, false},
	{"linearizable", 5 * time.Minute, linearizable, false},
	{"lookups", 30 * time.Minute, lookups, true},
	{"million", 40 * time.Minute, million, true},
	{"restart", 40 * time.Minute, restart, true},
	{"snapshot", 40 * time.Minute, snapshot, true},
	{"storms", 40 * time.Minute, storms, true},
	{"sync", 30 * time.Minute, firstSync, false},
	{"foreign", 40 * time.Minute, foreign, false},
}

func main() {
	if len(os.Args) > 1 && os.Args[1] == bareCommand {
		if err := serveBare(os.Args[2:]); err != nil {
			fmt.Fprintln(os.Stderr, "load:", err)
			os.Exit(1)
		}

		return
	}

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, parse())
	stop()

	if err != nil {
		fmt.Fprintln(os.Stderr, "load:", err)
		os.Exit(1)
	}
}

func parse() options {
	var (
		o     options
		names []string
	)
	for _, s := range sections {
		names = append(names, s.name)
	}

	list := flag.String("sections", "all", "which to run, separated by commas: "+strings.Join(names, ", "))
	flag.BoolVar(&o.full, "full", false, "the sizes that the bars name: a million registrations, long turns")
	flag.DurationVar(&o.turn, "time", 0, "how long one side is measured in one round (3s; 10s with -full)")
	flag.IntVar(&o.rounds, "rounds", 0, "how many rounds (3; 5 with -full)")
	flag.IntVar(&o.size, "size", 0, "registrations of the sections about many (20,000; 1,000,000 with -full)")
	flag.StringVar(&o.binary, "roster", "", "the program to measure; built from this module where it isn't given")
	flag.StringVar(&o.json, "json", "", "a file for the results in JSON")
	flag.StringVar(&o.keep, "keep", "", "a directory in which the filled directories stay for the next run")
	flag.Parse()

	if *list != "all" {
		o.sections = strings.Split(*list, ",")
	}

	for _, d := range []struct {
		value       *int
		short, full int
	}{{&o.rounds, 3, 5}, {&o.size, 20_000, 1_000_000}} {
		if *d.value == 0 {
			*d.value = d.short
			if o.full {
				*d.value = d.full
			}
		}
	}

	if o.turn == 0 {
		o.turn = 3 * time.Second
		if o.full {
			o.turn = 10 * time.Second
		}
	}

	return o
}

func run(ctx context.Context, options options) (err error) {
	for _, name := range options.sections {
		if !slices.ContainsFunc(sections, func(s section) bool { return s.name == name }) {
			return fmt.Errorf("there is no section %q", name)
		}
	}

	b := &bench{options: options, report: newReport()}
	if b.dir, err = os.MkdirTemp("", "roster-load-"); err != nil {
		return err
	}

	defer func() { err = errors.Join(err, os.RemoveAll(b.dir)) }()
	defer b.empty()

	if b.binary == "" {
		b.note("building roster")

		if b.binary, err = launch.Build(ctx, b.dir); err != nil {
			return err
		}
	}

	chosen := slices.DeleteFunc(slices.Clone(sections), func(s section) bool {
		return len(options.sections) > 0 && !slices.Contains(options.sections, s.name)
	})
	for i, s := range chosen {
		b.note("%s …", s.name)
		bound, cancel := context.WithTimeout(ctx, s.limit)
		failure := s.run(bound, b)
		cancel()

		if !slices.ContainsFunc(chosen[i+1:], func(s section) bool { return s.many }) {
			b.empty() // later sections have the machine for themselves
		}

		if failure != nil {
			err = errors.Join(err, fmt.Errorf("%s: %w", s.name, failure))
			b.report.fail(s.name, failure)
		}

		if ctx.Err() != nil {
			break
		}
	}

	b.report.print(os.Stdout)

	if options.json != "" {
		err = errors.Join(err, b.report.write(options.json))
	}

	return err
}
