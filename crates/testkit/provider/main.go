// A small provider for tests: `thing_file` is a file, made, changed, removed and imported by its path.
// With `wait` it says that it has begun (PATH.started) and goes on only when PATH.go is there.
package main

import (
	"context"
	"errors"
	"log"
	"os"
	"path/filepath"
	"time"

	"github.com/hashicorp/terraform-plugin-framework/datasource"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/provider"
	"github.com/hashicorp/terraform-plugin-framework/providerserver"
	"github.com/hashicorp/terraform-plugin-framework/resource"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/planmodifier"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/stringplanmodifier"
	"github.com/hashicorp/terraform-plugin-framework/types"
)

func main() {
	options := providerserver.ServeOpts{Address: "example.io/test/thing"}
	newProvider := func() provider.Provider { return thing{} }
	if err := providerserver.Serve(context.Background(), newProvider, options); err != nil {
		log.Fatal(err)
	}
}

type thing struct{}

func (thing) Metadata(_ context.Context, _ provider.MetadataRequest, is *provider.MetadataResponse) {
	is.TypeName = "thing"
}
func (thing) Schema(context.Context, provider.SchemaRequest, *provider.SchemaResponse)          {}
func (thing) Configure(context.Context, provider.ConfigureRequest, *provider.ConfigureResponse) {}
func (thing) DataSources(context.Context) []func() datasource.DataSource                        { return nil }
func (thing) Resources(context.Context) []func() resource.Resource {
	return []func() resource.Resource{func() resource.Resource { return file{} }}
}

type file struct{}

type fields struct {
	ID   types.String `tfsdk:"id"`
	Path types.String `tfsdk:"path"`
	Text types.String `tfsdk:"text"`
	Wait types.String `tfsdk:"wait"`
}

func (file) Metadata(_ context.Context, _ resource.MetadataRequest, is *resource.MetadataResponse) {
	is.TypeName = "thing_file"
}

func (file) Schema(_ context.Context, _ resource.SchemaRequest, is *resource.SchemaResponse) {
	replaced := []planmodifier.String{stringplanmodifier.RequiresReplace()}
	kept := []planmodifier.String{stringplanmodifier.UseStateForUnknown()}
	is.Schema = schema.Schema{Attributes: map[string]schema.Attribute{
		"id":   schema.StringAttribute{Computed: true, PlanModifiers: kept},
		"path": schema.StringAttribute{Required: true, PlanModifiers: replaced},
		"text": schema.StringAttribute{Required: true},
		"wait": schema.StringAttribute{Optional: true},
	}}
}

func (file) Create(ctx context.Context, asked resource.CreateRequest, is *resource.CreateResponse) {
	var it fields
	is.Diagnostics.Append(asked.Plan.Get(ctx, &it)...)
	if err := it.write(); err != nil {
		is.Diagnostics.AddError("could not write the file", err.Error())
		return
	}
	is.Diagnostics.Append(is.State.Set(ctx, &it)...)
}

func (file) Update(ctx context.Context, asked resource.UpdateRequest, is *resource.UpdateResponse) {
	var it fields
	is.Diagnostics.Append(asked.Plan.Get(ctx, &it)...)
	if err := it.write(); err != nil {
		is.Diagnostics.AddError("could not write the file", err.Error())
		return
	}
	is.Diagnostics.Append(is.State.Set(ctx, &it)...)
}

func (file) Read(ctx context.Context, asked resource.ReadRequest, is *resource.ReadResponse) {
	var it fields
	is.Diagnostics.Append(asked.State.Get(ctx, &it)...)
	text, err := os.ReadFile(it.Path.ValueString())
	if errors.Is(err, os.ErrNotExist) {
		is.State.RemoveResource(ctx)
		return
	}
	if err != nil {
		is.Diagnostics.AddError("could not read the file", err.Error())
		return
	}
	it.Text = types.StringValue(string(text))
	is.Diagnostics.Append(is.State.Set(ctx, &it)...)
}

func (file) Delete(ctx context.Context, asked resource.DeleteRequest, is *resource.DeleteResponse) {
	var it fields
	is.Diagnostics.Append(asked.State.Get(ctx, &it)...)
	it.waitFor()
	if err := os.Remove(it.Path.ValueString()); err != nil && !errors.Is(err, os.ErrNotExist) {
		is.Diagnostics.AddError("could not remove the file", err.Error())
	}
}

func (file) ImportState(ctx context.Context, asked resource.ImportStateRequest, is *resource.ImportStateResponse) {
	is.Diagnostics.Append(is.State.SetAttribute(ctx, path.Root("id"), asked.ID)...)
	is.Diagnostics.Append(is.State.SetAttribute(ctx, path.Root("path"), asked.ID)...)
}

func (it *fields) write() error {
	it.waitFor()
	it.ID = it.Path
	return os.WriteFile(it.Path.ValueString(), []byte(it.Text.ValueString()), 0o600)
}

// A test that fails takes the directory away, which opens every gate.
func (it *fields) waitFor() {
	gate := it.Wait.ValueString()
	if gate == "" {
		return
	}
	_ = os.WriteFile(gate+".started", nil, 0o600)
	for {
		_, missing := os.Stat(gate + ".go")
		_, gone := os.Stat(filepath.Dir(gate))
		if missing == nil || gone != nil {
			return
		}
		time.Sleep(20 * time.Millisecond)
	}
}
