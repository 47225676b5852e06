package main

import (
	"context"
	"fmt"

	"github.com/roster-mesh/roster/api/client"
)

func main() {
	c, err := client.New(client.Config{Addresses: []string{"https://127.0.0.1:8400"}})
	if err != nil {
		panic(err)
	}
	found, err := c.Lookup(context.Background(), client.LookupOptions{CapName: []string{"summarize"}})
	fmt.Println(found, err)
}
