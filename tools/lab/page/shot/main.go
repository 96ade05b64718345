// Command shot photographs a page in a headless Chromium: a PNG of the window, or of the whole page where HEIGHT is 0.
//
//	go run ./tools/lab/page/shot FILE.html|http://... OUT.png WIDTH HEIGHT light|dark [#SECTION]
package main

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"

	"promptfed/tools/lab/page/browser"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "shot:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) != 5 && len(args) != 6 {
		return fmt.Errorf("usage: shot FILE.html|http://... OUT.png WIDTH HEIGHT light|dark [#SECTION]")
	}
	width, err1 := strconv.Atoi(args[2])
	height, err2 := strconv.Atoi(args[3])
	if err1 != nil || err2 != nil || width < 1 || height < 0 {
		return fmt.Errorf("width %q and height %q must be numbers of pixels", args[2], args[3])
	}
	if args[4] != "light" && args[4] != "dark" {
		return fmt.Errorf("colours %q: light or dark", args[4])
	}
	path, err := browser.Find()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	b, stop, err := browser.Start(ctx, path)
	if err != nil {
		return err
	}
	defer stop()

	address := args[0]
	if !strings.HasPrefix(address, "http://") {
		file, err := filepath.Abs(address)
		if err != nil {
			return err
		}
		address = (&url.URL{Scheme: "file", Path: filepath.ToSlash(file)}).String()
	}
	window := int64(height)
	if height == 0 {
		window = 900
	}
	scale := 1.0
	if width < 600 { // a phone's screen has more pixels than CSS pixels
		scale = 2
	}
	if _, err := chromedp.Call(b, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
		Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: args[4]}}}); err != nil {
		return err
	}
	if err := chromedp.Do(b, chromedp.EmulateViewport(int64(width), window, chromedp.EmulateScale(scale)),
		chromedp.Navigate(address),
		chromedp.WaitReady(chromedp.CSS(`html[data-ready="true"]`))); err != nil {
		return fmt.Errorf("%s: %w", args[0], err)
	}
	if len(args) == 6 {
		to := fmt.Sprintf(`document.documentElement.style.scrollBehavior = "auto";
			document.querySelector(%q).scrollIntoView(); true`, args[5])
		if _, err := chromedp.Run(b, chromedp.Evaluate[bool](to)); err != nil {
			return fmt.Errorf("%s: no %s: %w", args[0], args[5], err)
		}
	}
	take := chromedp.CaptureScreenshot()
	if height == 0 {
		take = chromedp.FullScreenshot(100)
	}
	// the browser paints the canvas in the next frame
	if err := chromedp.Do(b, chromedp.Sleep(300*time.Millisecond)); err != nil {
		return err
	}
	png, err := chromedp.Run(b, take)
	if err != nil {
		return fmt.Errorf("%s: %w", args[0], err)
	}
	return os.WriteFile(args[1], png, 0o644)
}
