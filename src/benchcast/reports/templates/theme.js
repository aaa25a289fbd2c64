// Light or dark, before anything is drawn: what the reader chose here, else what the system says.
(() => {
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const stored = () => {
    try {
      return localStorage.getItem("benchcast-theme") || "auto";
    } catch {
      return "auto";
    } // storage may be off for files
  };
  const apply = (choice) => {
    document.documentElement.dataset.theme = choice === "auto" ? (dark.matches ? "dark" : "light") : choice;
  };
  apply(stored());
  addEventListener("DOMContentLoaded", () => {
    const select = document.getElementById("theme");
    select.value = stored();
    select.addEventListener("change", () => {
      try {
        localStorage.setItem("benchcast-theme", select.value);
      } catch {
        /* the choice lasts as long as the page */
      }
      apply(select.value);
    });
    dark.addEventListener("change", () => apply(select.value));
  });
})();
