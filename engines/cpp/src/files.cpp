#include "files.hpp"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <fstream>
#include <system_error>

#include "mrcfa.hpp"

namespace mrcfa {

namespace fs = std::filesystem;

std::string content_of(const fs::path& path, std::uintmax_t most) {
  std::ifstream file(path, std::ios::binary);
  std::string content;
  std::error_code failure;
  const std::uintmax_t bytes = std::min(fs::file_size(path, failure), most);
  if (!failure && file) {
    content.resize(bytes);
    file.read(content.data(), static_cast<std::streamsize>(bytes));
  }
  if (failure || !file) {
    throw Error(path.string() + " cannot be read: " +
                (failure ? failure : std::error_code(errno, std::generic_category())).message());
  }
  return content;
}

void write_whole(const fs::path& path, std::string_view content) {
  static std::atomic<unsigned> written = 0;
  const std::string own = std::to_string(getpid()) + "-" + std::to_string(written++);
  const fs::path part =
      path.parent_path() / ("." + path.filename().string() + "." + own + ".partial");
  std::error_code failure;
  fs::create_directories(path.parent_path(), failure);
  if (!failure) {
    std::ofstream file(part, std::ios::binary);
    file.write(content.data(), static_cast<std::streamsize>(content.size()));
    file.close();
    if (!file) {
      failure = std::error_code(errno, std::generic_category());
    }
  }
  if (!failure) {
    fs::rename(part, path, failure);
  }
  if (failure) {
    std::error_code ignored;
    fs::remove(part, ignored);
    throw Error("cannot write " + path.string() + ": " + failure.message());
  }
}

fs::path cache_folder() {
  const char* cache = std::getenv("XDG_CACHE_HOME");
  if (cache != nullptr && *cache != '\0') {
    return fs::path(cache) / "mrcfa";
  }
  const char* home = std::getenv("HOME");
  return home != nullptr && *home != '\0' ? fs::path(home) / ".cache" / "mrcfa" : fs::path();
}

}  // namespace mrcfa
