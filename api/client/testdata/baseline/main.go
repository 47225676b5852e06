package main

import (
	"fmt"
	"net/http"

	"github.com/spiffe/go-spiffe/v2/spiffeid"
)

func main() {
	id, err := spiffeid.FromString("spiffe://alpha.example/agent")
	if err != nil {
		panic(err)
	}
	found, err := http.Get("https://127.0.0.1:8400/ad/l?cap_name=summarize")
	fmt.Println(id, found, err)
}
