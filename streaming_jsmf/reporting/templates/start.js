// Prepare all views and show the first one.

function start() {
  document.documentElement.classList.add("scripted");
  prepareOverview();
  prepareDetail();
  prepareExport();
  registerView("overview", () => {});
  registerView("map", drawMap);
  registerView("together", (section) => {
    matrix.size = null;
    drawTogether(section);
  });
  registerView("words", drawWordView);
  groupViews.forEach((of, place) => registerView(place ? `groups-${place + 1}` : "groups", (section) => drawGroupView(section, of)));
  registerView("documents", drawDocuments); // ignored if the page has none
  if (data.levels) registerView("levels", drawLevels);
  registerView("trust", () => {});
  document.addEventListener("click", followLink);
  addEventListener("hashchange", () => follow(location.hash));
  addEventListener("resize", () => refresh(views.get(shownView)));
  dark.addEventListener("change", () => refresh(views.get(shownView)));
  // Print all views below each other.
  addEventListener("beforeprint", () => {
    for (const view of views.values()) {
      view.section.hidden = false;
      refresh(view);
    }
  });
  addEventListener("afterprint", () => show(shownView));
  show("overview");
  follow(location.hash);
}

/** Follow a link within the page, also where the page has no URL of its own. */
function followLink(event) {
  const link = event.target.closest("a[href^='#']");
  if (!link) return;
  event.preventDefault();
  if (follow(link.hash)) remember(link.hash);
  if (link.matches(".parts a")) hideTooltip();
}

start();
