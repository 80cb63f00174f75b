// A Vault for tests: its own core, HTTP and five of its plugins, in memory and unsealed.
package main

import (
	"context"
	"flag"
	"fmt"
	"net"
	"net/http"
	"os"
	"time"

	log "github.com/hashicorp/go-hclog"
	jwt "github.com/hashicorp/vault-plugin-auth-jwt"
	kubernetes "github.com/hashicorp/vault-plugin-auth-kubernetes"
	kv "github.com/hashicorp/vault-plugin-secrets-kv"
	"github.com/hashicorp/vault/audit"
	"github.com/hashicorp/vault/builtin/credential/approle"
	"github.com/hashicorp/vault/helper/namespace"
	vaulthttp "github.com/hashicorp/vault/http"
	"github.com/hashicorp/vault/internalshared/configutil"
	"github.com/hashicorp/vault/sdk/helper/consts"
	"github.com/hashicorp/vault/sdk/logical"
	"github.com/hashicorp/vault/sdk/physical/inmem"
	"github.com/hashicorp/vault/vault"
)

// none is a registry of plugins that are not compiled in.
type none struct{}

func (none) Contains(string, consts.PluginType) bool                           { return false }
func (none) Get(string, consts.PluginType) (func() (interface{}, error), bool) { return nil, false }
func (none) Keys(consts.PluginType) []string                                   { return nil }
func (none) DeprecationStatus(string, consts.PluginType) (consts.DeprecationStatus, bool) {
	return consts.Supported, true
}
func (none) IsBuiltinEntPlugin(string, consts.PluginType) bool { return false }

func main() {
	address := flag.String("address", "127.0.0.1:0", "where to listen")
	token := flag.String("token", "", "the root token")
	flag.Parse()
	if err := serve(*address, *token); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func serve(address, token string) error {
	logger := log.New(&log.LoggerOptions{Level: log.Warn})
	storage, err := inmem.NewInmem(nil, logger)
	if err != nil {
		return err
	}
	core, err := vault.NewCore(&vault.CoreConfig{
		Physical:           storage,
		LogicalBackends:    map[string]logical.Factory{"kv": kv.Factory},
		CredentialBackends: map[string]logical.Factory{
			"approle": approle.Factory, "jwt": jwt.Factory, "kubernetes": kubernetes.Factory,
		},
		AuditBackends:      map[string]audit.Factory{},
		BuiltinRegistry:    none{},
		DisableMlock:       true,
		Logger:             logger,
		NumRollbackWorkers: 2,
	})
	if err != nil {
		return err
	}
	ctx := namespace.ContextWithNamespace(context.Background(), namespace.RootNamespace)
	init, err := core.Initialize(ctx, &vault.InitParams{
		BarrierConfig:  &vault.SealConfig{SecretShares: 1, SecretThreshold: 1, StoredShares: 1},
		RecoveryConfig: &vault.SealConfig{SecretShares: 1, SecretThreshold: 1},
	})
	if err != nil {
		return err
	}
	for _, key := range init.SecretShares {
		if _, err := core.Unseal(key); err != nil {
			return err
		}
	}
	for core.Sealed() {
		time.Sleep(10 * time.Millisecond)
	}
	_, err = core.HandleRequest(ctx, &logical.Request{
		ID: "root", Operation: logical.UpdateOperation, ClientToken: init.RootToken, Path: "auth/token/create",
		Data: map[string]interface{}{"id": token, "policies": []string{"root"}, "no_parent": true},
	})
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return err
	}
	return http.Serve(listener, vaulthttp.Handler.Handler(&vault.HandlerProperties{
		Core:           core,
		ListenerConfig: &configutil.Listener{Address: address},
	}))
}
